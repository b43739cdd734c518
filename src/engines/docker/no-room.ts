import type { NoRoomAnswer } from '../../engine/no-room.js';

/** The answers of the Docker engine and of the kernel below it that mean "no room". */
export const NO_ROOM: readonly NoRoomAnswer[] = [
  {
    // The bridge of the kernel: BR_MAX_PORTS. Each sandbox has one.
    said: /\bexchange full$/,
    words: 'the network of the engine is full: a bridge has 1,024 ports; stop a sandbox, or add a worker',
  },
  {
    said: /\bno available (?:IPv4 )?addresses on (?:this|these) (?:network|pool)|\baddress pool is exhausted\b/i,
    words:
      'the network of the engine has no free address; stop a sandbox, or name a larger one with --docker-network',
  },
  {
    said: /\bnon-overlapping IPv4 address pool\b|\ball predefined address pools have been fully subnetted\b/,
    words:
      'the engine has no range of addresses left for a network; remove unused ones, or add default-address-pools',
  },
  {
    // The limit of control groups has the same code as a full disk.
    said: /\/sys\/fs\/cgroup\/\S*: no space left on device$/,
    words: 'the kernel has no control group left; stop a sandbox, or raise cgroup.max.descendants',
  },
  {
    said: /\bno space left on device$/,
    words: 'the disk of the machine is full; delete a sandbox or an image',
  },
  {
    said: /\bdisk quota exceeded$/,
    words: 'the disk quota of the engine is used up; delete a sandbox or an image',
  },
  {
    said: /\bcannot allocate memory$/i,
    words: 'the machine has no memory for another sandbox; stop one, or add a worker',
  },
  {
    said: /\bresource temporarily unavailable$/,
    words:
      'the machine is at its limit of processes; stop a sandbox, or raise TasksMax of the engine and kernel.pid_max',
  },
  {
    said: /\btoo many open files(?: in system)?$/i,
    words:
      'the engine has no file descriptor left; stop a sandbox, or raise LimitNOFILE of the engine and fs.file-max',
  },
  {
    said: /\bno buffer space available$/,
    words: 'the network of the kernel has no buffers left; stop a sandbox',
  },
];
