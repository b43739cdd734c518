import type { Restrictions } from '../http/schema.js';

/**
 * The parts of a sandbox that restrict it or give it something. Their unknown fields are refused. Elsewhere a field is refused by a
 * word: other services have such fields, and a sandbox without the restriction would run.
 */
export const RESTRICTIONS: Restrictions = {
  fields: ['resources', 'rlimits', 'mounts', 'network', 'lifecycle', 'security_profile', 'env'],
  words: [
    'resource cpu vcpu core gpu accelerator memory ram swap disk storage',
    'volume mount bandwidth limit rlimit ulimit quota max rate budget',
    'timeout ttl deadline expire duration idle lifecycle ephemeral',
    'network port egress ingress outbound inbound dns proxy firewall policy',
    'allow allowed allowlist deny denied denylist block blocked internet',
    'secret credential sensitive masked env environment',
    'readonly privileged capability security seccomp apparmor isolation isolated',
  ].flatMap((words) => words.split(' ')),
};
