import { shortInstant } from '../../lib/instant.js';
import { leafOf, linkOf, originOf } from '../events/content.js';
import type { PublicKey } from '../events/event-keys.js';
import { checkSignature, type Checkpoint, type Drop } from '../log/checkpoint.js';
import type { Entry } from '../log/entry.js';

/**
 * `unknown_key`: signed by a key that is not among those to be trusted; `unsealed`: events wait for who puts them into the log.
 */
export type Fault = 'tampered' | 'unknown_key' | 'unsealed';

export interface Verdict {
  /** Entries that were looked at. */
  entries: number;
  /** Signed checkpoints that were compared. */
  checkpoints: number;
  /** Entries of events that nobody wrote who has the event keys: what the release before the log left. */
  unmarked: number;
  /** The first thing that is wrong, as a sentence. */
  wrong: string | null;
  fault: Fault | null;
}

/** What is wrong, at the first place where it shows. */
export class Wrong extends Error {
  constructor(
    message: string,
    readonly fault: Fault = 'tampered',
  ) {
    super(message);
  }
}

/** Whom and what one who verifies believes. */
export interface Trust {
  /** The one that signs now first, then those before it. */
  keys: readonly PublicKey[];
  /** Events of which he knows that the release before the log wrote them during an upgrade, by id. */
  accepted?: ReadonlySet<string>;
}

/**
 * Walks a log from its beginning, or from a signed place, entry by entry. It holds the walk's place and nothing of what lies
 * behind it. Every method throws Wrong.
 */
export class Walk {
  entries = 0;
  checkpoints = 0;
  unmarked = 0;
  private seq = 0;
  private link: Buffer;

  constructor(
    private readonly orgId: string,
    private readonly trust: Trust,
    /** What retention took, in their order. */
    private readonly drops: readonly Drop[],
    /** What is said to be the signed end. It is not believed before the walk has come there. */
    private readonly end: Checkpoint | undefined,
  ) {
    this.link = originOf(orgId);
    for (const drop of drops) this.believe(drop);
    const base = drops.reduce<Drop | undefined>(
      (latest, drop) => (drop.base_seq > (latest?.base_seq ?? 0) ? drop : latest),
      undefined,
    );
    if (base) this.beginAfter(base.base_seq, base.base_link);
  }

  /** Whether the log has events of our own. */
  get marked(): boolean {
    return (this.end?.marked_from ?? null) !== null;
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
    if (entry.seq !== expected) throw new Wrong(this.explainGap(expected, entry));
    const which = `entry ${entry.seq} (event ${entry.event_id} of ${shortInstant(entry.occurred_at)})`;
    const { event } = entry;
    if (event) {
      const same = event.id === entry.event_id && event.occurred_at === entry.occurred_at;
      if (!same || event.org_id !== this.orgId || !leafOf(event).equals(entry.leaf)) {
        throw new Wrong(`${which} was changed: its content does not have the hash that was written down`);
      }
    } else if (!this.wasDropped(entry)) {
      throw new Wrong(`the event of ${which} was removed: retention did not drop it`);
    }
    const link = linkOf(this.link, entry);
    if (!link.equals(entry.link)) {
      throw new Wrong(
        `${which} does not follow entry ${this.seq}: it, or the one before it, was changed, inserted or reordered`,
      );
    }
    // A log begins with what was there before it. Later, and without a mark, an event was put in past the service.
    const isLate = entry.seq > (this.end?.marked_from ?? Infinity);
    if (entry.unmarked && isLate && !this.trust.accepted?.has(entry.event_id)) {
      throw new Wrong(`${which} was inserted: nobody wrote it who has the event keys`);
    }
    if (entry.unmarked) this.unmarked += 1;
    this.seq = entry.seq;
    this.link = link;
    this.entries += 1;
  }

  /** To be called where the walk has come to the place of the checkpoint. */
  meet(checkpoint: Checkpoint): void {
    this.believe(checkpoint);
    if (checkpoint.seq < this.seq || !checkpoint.link.equals(this.link)) {
      throw new Wrong(
        `the log up to entry ${checkpoint.seq} is not the one that was signed at ${shortInstant(checkpoint.at)}: it was written anew`,
      );
    }
    this.checkpoints += 1;
  }

  /** Nothing comes any more. `end`: the last signed place that is known. */
  finish(end: Checkpoint | undefined): void {
    if (!end) {
      if (this.seq > 0) throw new Wrong('the log has no signed end');
      return;
    }
    this.believe(end);
    if (end.seq > this.seq) {
      throw new Wrong(
        `the log ends at entry ${this.seq}, and was signed up to entry ${end.seq} at ${shortInstant(end.at)}: its end was cut off`,
      );
    }
    if (end.seq < this.seq) {
      throw new Wrong(
        `what comes after entry ${end.seq} is not signed: it was added to, or the signed end was cut off`,
      );
    }
    this.meet(end);
  }

  /** Whether retention took the event of an entry. */
  wasDropped({ seq, occurred_at }: Pick<Entry, 'seq' | 'occurred_at'>): boolean {
    return this.drops.some((drop) => seq <= drop.seq && occurred_at < drop.dropped_before);
  }

  /** Throws unless a key that is trusted signed it, for this log. */
  believe(checkpoint: Checkpoint | Drop): void {
    // A signed place before the end needs no more: the end is linked to it.
    const endKey = 'dropped_before' in checkpoint ? this.end?.key_id : undefined;
    const wrong = checkSignature(checkpoint, this.trust.keys, endKey);
    if (wrong) throw new Wrong(wrong.sentence, wrong.unknownKey ? 'unknown_key' : 'tampered');
    if (checkpoint.org_id !== this.orgId) throw new Wrong('a checkpoint is of another organization');
  }

  private explainGap(expected: number, { seq }: Entry): string {
    if (seq < expected) return `entry ${seq} comes after entry ${expected - 1}: the log was reordered`;
    const last = seq - 1;
    return last === expected
      ? `entry ${expected} was removed`
      : `entries ${expected} to ${last} were removed`;
  }
}
