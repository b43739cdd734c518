import type { Instant } from '../lib/instant.js';
import { shortInstant } from '../lib/instant.js';
import { leafOf, linkOf, originOf, type EventContent } from './canonical.js';
import { checkSignature, type Checkpoint, type Drop } from './checkpoint.js';
import type { PublicKey } from './signing-key.js';

/** An entry of a log, wherever it was read. */
export interface Entry {
  seq: number;
  event_id: string;
  occurred_at: Instant;
  leaf: Buffer;
  link: Buffer;
  event: EventContent | null;
}

export interface Verdict {
  /** Entries that were looked at. */
  entries: number;
  /** Signed checkpoints that were compared. */
  checkpoints: number;
  /** The first thing that is wrong, as a sentence. */
  wrong: string | null;
}

/** What is wrong, at the first place where it shows. */
export class Tampered extends Error {}

/**
 * Walks a log from its beginning, or from a signed place, entry by entry. It holds the walk's place and nothing of what lies
 * behind it. Every method throws Tampered.
 */
export class Walk {
  entries = 0;
  checkpoints = 0;
  private seq = 0;
  private link: Buffer;

  constructor(
    private readonly orgId: string,
    private readonly trusted: readonly PublicKey[],
    /** What retention took, in their order. */
    private readonly drops: readonly Drop[],
  ) {
    this.link = originOf(orgId);
    for (const drop of drops) this.trust(drop);
    const base = drops.reduce<Drop | undefined>(
      (latest, drop) => (drop.base_seq > (latest?.base_seq ?? 0) ? drop : latest),
      undefined,
    );
    if (base) this.beginAfter(base.base_seq, base.base_link);
  }

  /** Where the walk is: the last entry that was found to be in order. */
  get place(): { seq: number; link: Buffer } {
    return { seq: this.seq, link: this.link };
  }

  /** For a file that begins in the middle of a log: all before it remains unseen. */
  beginAfter(seq: number, link: Buffer): void {
    this.seq = seq;
    this.link = link;
  }

  next(entry: Entry): void {
    const expected = this.seq + 1;
    if (entry.seq !== expected) throw new Tampered(this.explainGap(expected, entry));
    const which = `entry ${entry.seq} (event ${entry.event_id} of ${shortInstant(entry.occurred_at)})`;
    const { event } = entry;
    if (event) {
      const same = event.id === entry.event_id && event.occurred_at === entry.occurred_at;
      if (!same || event.org_id !== this.orgId || !leafOf(event).equals(entry.leaf)) {
        throw new Tampered(`${which} was changed: its content does not have the hash that was written down`);
      }
    } else if (!this.wasDropped(entry)) {
      throw new Tampered(`the event of ${which} was removed: retention did not drop it`);
    }
    const link = linkOf(this.link, entry);
    if (!link.equals(entry.link)) {
      throw new Tampered(
        `${which} does not follow entry ${this.seq}: it, or the one before it, was changed, inserted or reordered`,
      );
    }
    this.seq = entry.seq;
    this.link = link;
    this.entries += 1;
  }

  /** To be called where the walk has come to the place of the checkpoint. */
  meet(checkpoint: Checkpoint): void {
    this.trust(checkpoint);
    if (checkpoint.seq < this.seq || !checkpoint.link.equals(this.link)) {
      throw new Tampered(
        `the log up to entry ${checkpoint.seq} is not the one that was signed at ${shortInstant(checkpoint.at)}: it was written anew`,
      );
    }
    this.checkpoints += 1;
  }

  /** Nothing comes any more. `end`: the last signed place that is known. */
  finish(end: Checkpoint | undefined): void {
    if (!end) {
      if (this.seq > 0) throw new Tampered('the log has no signed end');
      return;
    }
    this.trust(end);
    if (end.seq > this.seq) {
      throw new Tampered(
        `the log ends at entry ${this.seq}, and was signed up to entry ${end.seq} at ${shortInstant(end.at)}: its end was cut off`,
      );
    }
    if (end.seq < this.seq) {
      throw new Tampered(
        `what comes after entry ${end.seq} is not signed: it was added to, or the signed end was cut off`,
      );
    }
    this.meet(end);
  }

  private trust(checkpoint: Checkpoint | Drop): void {
    const wrong = checkSignature(checkpoint, this.trusted);
    if (wrong !== undefined) throw new Tampered(wrong);
    if (checkpoint.org_id !== this.orgId) throw new Tampered('a checkpoint is of another organization');
  }

  private wasDropped({ seq, occurred_at }: Entry): boolean {
    return this.drops.some((drop) => seq <= drop.seq && occurred_at < drop.dropped_before);
  }

  private explainGap(expected: number, { seq }: Entry): string {
    if (seq < expected) return `entry ${seq} comes after entry ${expected - 1}: the log was reordered`;
    const last = seq - 1;
    return last === expected
      ? `entry ${expected} was removed`
      : `entries ${expected} to ${last} were removed`;
  }
}
