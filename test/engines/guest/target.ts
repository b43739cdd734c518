import type { Guest } from '../../../src/guest/guest.js';

/** Everything of which a command could leave something behind. */
export interface Census {
  processes: number;
  zombies: number;
  /** Open descriptors on the side of the sandbox. */
  descriptors: number;
}

/** A sandbox with the applets of busybox in its PATH, and `COLOUR=blue` in its environment. */
export interface GuestTarget {
  guest: Guest;
  /** An empty directory of the sandbox that the tests may fill. */
  directory: string;
  census(): Promise<Census>;
  close(): Promise<void>;
}
