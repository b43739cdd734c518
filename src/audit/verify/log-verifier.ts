import { shortInstant } from '../../lib/instant.js';
import type { PublicKey } from '../events/event-keys.js';
import { genesisLink, leafOf, linkOf, type LogPosition } from '../events/hash-chain.js';
import { checkSignature, type Checkpoint, type DropRecord } from '../log/checkpoint.js';
import type { LogEntry } from '../log/log-entry.js';
import { VerificationFault } from './verification-fault.js';

export interface Trust {
  keys: readonly PublicKey[];
  /** The ids of unmarked events that the verifier accepts: a release without a log wrote them during an upgrade. */
  accepted?: ReadonlySet<string>;
}

/** Verifies the entries of a log one by one, in bounded memory. Every method throws VerificationFault. */
export class LogVerifier {
  entries = 0;
  checkpoints = 0;
  unmarked = 0;
  private seq = 0;
  private link: Buffer;

  /** `drops`: in the order of the log. `end`: the alleged signed end, which `verifyEnd` verifies. */
  constructor(
    private readonly orgId: string,
    private readonly trust: Trust,
    private readonly drops: readonly DropRecord[],
    private readonly end: Checkpoint | undefined,
  ) {
    this.link = genesisLink(orgId);
    for (const drop of drops) this.requireTrusted(drop);
    const base = drops.reduce<DropRecord | undefined>(
      (latest, drop) => (drop.base_seq > (latest?.base_seq ?? 0) ? drop : latest),
      undefined,
    );
    if (base) this.startAfter(base.base_seq, base.base_link);
  }

  get marked(): boolean {
    return (this.end?.marked_from ?? null) !== null;
  }

  get position(): LogPosition {
    return { seq: this.seq, link: this.link };
  }

  /** For a file with the later part of a log: the previous entries are not verified. */
  startAfter(seq: number, link: Buffer): void {
    this.seq = seq;
    this.link = link;
  }

  verifyEntry(entry: LogEntry): void {
    const expected = this.seq + 1;
    if (entry.seq !== expected) throw new VerificationFault(this.explainGap(expected, entry));
    const which = `entry ${entry.seq} (event ${entry.event_id} of ${shortInstant(entry.occurred_at)})`;
    const { event } = entry;
    if (event) {
      const same = event.id === entry.event_id && event.occurred_at === entry.occurred_at;
      if (!same || event.org_id !== this.orgId || !leafOf(event).equals(entry.leaf)) {
        throw new VerificationFault(`${which} was changed: its content does not have the recorded hash`);
      }
    } else if (!this.wasDropped(entry)) {
      throw new VerificationFault(`the event of ${which} was removed: retention did not drop it`);
    }
    const link = linkOf(this.link, entry);
    if (!link.equals(entry.link)) {
      throw new VerificationFault(
        `${which} does not follow entry ${this.seq}: one of the two was changed, inserted or reordered`,
      );
    }
    // Releases without a log left unmarked events at its beginning. Later ones are forged.
    const isLate = entry.seq > (this.end?.marked_from ?? Infinity);
    if (entry.unmarked && isLate && !this.trust.accepted?.has(entry.event_id)) {
      throw new VerificationFault(`${which} was inserted: it has no mark of the event keys`);
    }
    if (entry.unmarked) this.unmarked += 1;
    this.seq = entry.seq;
    this.link = link;
    this.entries += 1;
  }

  /** The verifier must be at the position of the checkpoint. */
  verifyCheckpoint(checkpoint: Checkpoint): void {
    this.requireTrusted(checkpoint);
    if (checkpoint.seq < this.seq || !checkpoint.link.equals(this.link)) {
      throw new VerificationFault(
        `the log up to entry ${checkpoint.seq} differs from the log signed at ${shortInstant(checkpoint.at)}: it was rewritten`,
      );
    }
    this.checkpoints += 1;
  }

  verifyEnd(end: Checkpoint | undefined): void {
    if (!end) {
      if (this.seq > 0) throw new VerificationFault('the log has no signed end');
      return;
    }
    this.requireTrusted(end);
    if (end.seq > this.seq) {
      throw new VerificationFault(
        `the log ends at entry ${this.seq}, and was signed up to entry ${end.seq} at ${shortInstant(end.at)}: its end was cut off`,
      );
    }
    if (end.seq < this.seq) {
      throw new VerificationFault(
        `the entries after entry ${end.seq} are not signed: they were added, or the signed end was cut off`,
      );
    }
    this.verifyCheckpoint(end);
  }

  wasDropped({ seq, occurred_at }: Pick<LogEntry, 'seq' | 'occurred_at'>): boolean {
    return this.drops.some((drop) => seq <= drop.seq && occurred_at < drop.dropped_before);
  }

  requireTrusted(checkpoint: Checkpoint | DropRecord): void {
    // The links connect a checkpoint to the signed end, so an older key may have signed it.
    const headKey = 'dropped_before' in checkpoint ? this.end?.key_id : undefined;
    const wrong = checkSignature(checkpoint, this.trust.keys, headKey);
    if (wrong) throw new VerificationFault(wrong.sentence, wrong.unknownKey ? 'unknown_key' : 'tampered');
    if (checkpoint.org_id !== this.orgId) {
      throw new VerificationFault('a checkpoint is of another organization');
    }
  }

  private explainGap(expected: number, { seq }: LogEntry): string {
    if (seq < expected) return `entry ${seq} comes after entry ${expected - 1}: the log was reordered`;
    const last = seq - 1;
    return last === expected
      ? `entry ${expected} was removed`
      : `entries ${expected} to ${last} were removed`;
  }
}
