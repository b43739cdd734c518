/**
 * The answers of engines that mean "no room": a later start may find some, so the start waits with these words. Everything else is a
 * refusal. Without words, those of the engine are fit for callers.
 */
export const NO_ROOM: readonly { engine: 'docker' | 'kubernetes'; said: RegExp; words?: string }[] = [
  {
    engine: 'docker',
    // The bridge of the kernel: BR_MAX_PORTS. Each sandbox has one.
    said: /\bexchange full$/,
    words: 'the network of the engine is full: a bridge has 1,024 ports; stop a sandbox, or add a worker',
  },
  {
    engine: 'docker',
    said: /\bno available (?:IPv4 )?addresses on (?:this|these) (?:network|pool)|\baddress pool is exhausted\b/i,
    words:
      'the network of the engine has no free address; stop a sandbox, or name a larger one with --docker-network',
  },
  {
    engine: 'docker',
    said: /\bnon-overlapping IPv4 address pool\b|\ball predefined address pools have been fully subnetted\b/,
    words:
      'the engine has no range of addresses left for a network; remove unused ones, or add default-address-pools',
  },
  {
    engine: 'docker',
    // The limit of control groups has the same code as a full disk.
    said: /\/sys\/fs\/cgroup\/\S*: no space left on device$/,
    words: 'the kernel has no control group left; stop a sandbox, or raise cgroup.max.descendants',
  },
  {
    engine: 'docker',
    said: /\bno space left on device$/,
    words: 'the disk of the machine is full; delete a sandbox or an image',
  },
  {
    engine: 'docker',
    said: /\bdisk quota exceeded$/,
    words: 'the disk quota of the engine is used up; delete a sandbox or an image',
  },
  {
    engine: 'docker',
    said: /\bcannot allocate memory$/i,
    words: 'the machine has no memory for another sandbox; stop one, or add a worker',
  },
  {
    engine: 'docker',
    said: /\bresource temporarily unavailable$/,
    words:
      'the machine is at its limit of processes; stop a sandbox, or raise TasksMax of the engine and kernel.pid_max',
  },
  {
    engine: 'docker',
    said: /\btoo many open files(?: in system)?$/i,
    words:
      'the engine has no file descriptor left; stop a sandbox, or raise LimitNOFILE of the engine and fs.file-max',
  },
  {
    engine: 'docker',
    said: /\bno buffer space available$/,
    words: 'the network of the kernel has no buffers left; stop a sandbox',
  },
  // A quota of the cluster or its operator.
  { engine: 'kubernetes', said: /\b(?:exceeded|status unknown for) quota\b/ },
  { engine: 'kubernetes', said: /\bbeing terminated\b/ },
];

/** Undefined: the answer does not mean that there is no room. */
export function noRoomWords(engine: 'docker' | 'kubernetes', answer: string): string | undefined {
  const found = NO_ROOM.find(
    (each) => each.engine === engine && each.said.test(answer.trim().replace(/: unknown$/, '')),
  );
  return found && (found.words ?? answer);
}
