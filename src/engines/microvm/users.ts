import { createHash } from 'node:crypto';
import { RunClaims } from './run-claims.js';

/** Above the users that systemd gives to containers and services, and below the end of the 31-bit numbers. */
const FIRST = 0x7000_0000;
const INSTALLATIONS = 4_096;
const EACH = 65_536;
/** The last of them. Machines that read snapshots have them, of all processes of an installation. */
export const ARCHIVE_USERS = 64;

/**
 * The users of monitors: one for each virtual machine that runs, so that a monitor that a sandbox has taken over can
 * touch no other one. They have no entry in /etc/passwd and own no file.
 */
export class MonitorUsers {
  readonly claims = new RunClaims<number>();
  private readonly first: number;

  constructor(instanceId: string) {
    const part = createHash('sha256').update(instanceId).digest().readUInt32BE(0) % INSTALLATIONS;
    this.first = FIRST + part * EACH;
  }

  /** `place`: less than ARCHIVE_USERS. */
  ofArchive(place: number): number {
    return this.first + EACH - ARCHIVE_USERS + place;
  }

  take(sandboxId: string): number {
    const used = new Set(this.claims.entries().map(([, user]) => user));
    for (let user = this.first; user < this.first + EACH - ARCHIVE_USERS; user += 1) {
      if (used.has(user)) continue;
      this.claims.claim(sandboxId, user);
      return user;
    }
    throw new Error(`${EACH - ARCHIVE_USERS} virtual machines run, which is the most of an installation`);
  }
}
