/**
 * Words in the names of unknown fields, which are refused outside the restricting fields of the specification too.
 * Other services have such fields, and a sandbox without the restriction would run.
 */
export const RESTRICTING_WORDS: readonly string[] = [
  'resource cpu vcpu core gpu accelerator memory ram swap disk storage',
  'volume mount bandwidth limit rlimit ulimit quota max rate budget',
  'timeout ttl deadline expire duration idle lifecycle ephemeral',
  'network port egress ingress outbound inbound dns proxy firewall policy',
  'allow allowed allowlist deny denied denylist block blocked internet',
  'secret credential sensitive masked env environment',
  'readonly privileged capability security seccomp apparmor isolation isolated',
].flatMap((words) => words.split(' '));

export const UNKNOWN_FIELDS =
  'Unknown fields are named in the `warnings` of the answer. Those that would restrict the sandbox or give it something are refused.';
