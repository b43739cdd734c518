import { sameBytes, toHex } from '../../lib/bytes.js';
import { shortInstant } from '../../lib/instant.js';
import type { ChainEntry, ChainPosition, LoggedEvent } from '../events/chain-text.js';
import type { SignatureFault, SignedCheckpoint, SignedDrop } from '../log/signed-text.js';
import { VerificationFault } from './verification-fault.js';

/** Hashes and signatures: of Node, or of WebCrypto in a browser. */
export interface LogCrypto {
  /** The newest trusted key. */
  currentKeyId: string | undefined;
  /** The ids of unmarked events that the verifier accepts: a release without a log wrote them during an upgrade. */
  accepted?: ReadonlySet<string> | undefined;
  genesisLink(orgId: string): Uint8Array;
  leafOf(event: LoggedEvent): Uint8Array;
  linkOf(previous: Uint8Array, entry: ChainEntry): Uint8Array;
  checkSignature(
    checkpoint: SignedCheckpoint | SignedDrop,
    headKey: string | undefined,
  ): SignatureFault | undefined;
}

/** Verifies the entries of a log one by one, in bounded memory. Every method throws VerificationFault. */
export class LogVerifier {
  entries = 0;
  checkpoints = 0;
  unmarked = 0;
  private seq = 0;
  private link: Uint8Array;

  /** `drops`: in the order of the log. `end`: the alleged signed end, which `verifyEnd` verifies. */
  constructor(
    private readonly orgId: string,
    private readonly crypto: LogCrypto,
    private readonly drops: readonly SignedDrop[],
    private readonly end: SignedCheckpoint | undefined,
  ) {
    this.link = crypto.genesisLink(orgId);
    for (const drop of drops) this.requireTrusted(drop);
    const base = drops.reduce<SignedDrop | undefined>(
      (latest, drop) => (drop.base_seq > (latest?.base_seq ?? 0) ? drop : latest),
      undefined,
    );
    if (base) this.startAfter(base.base_seq, base.base_link);
  }

  get marked(): boolean {
    return (this.end?.marked_from ?? null) !== null;
  }

  get position(): ChainPosition {
    return { seq: this.seq, link: this.link };
  }

  /** For a file with the later part of a log: the previous entries are not verified. */
  startAfter(seq: number, link: Uint8Array): void {
    this.seq = seq;
    this.link = link;
  }

  verifyEntry(entry: ChainEntry): void {
    const expected = this.seq + 1;
    const place = { seq: entry.seq, event_id: entry.event_id };
    if (entry.seq !== expected) {
      throw new VerificationFault(this.explainGap(expected, entry), 'tampered', {
        ...place,
        expected: `entry ${expected}`,
        found: `entry ${entry.seq}`,
      });
    }
    const which = `entry ${entry.seq} (event ${entry.event_id} of ${shortInstant(entry.occurred_at)})`;
    const { event } = entry;
    if (event) {
      const same = event.id === entry.event_id && event.occurred_at === entry.occurred_at;
      const leaf = this.crypto.leafOf(event);
      if (!same || event.org_id !== this.orgId || !sameBytes(leaf, entry.leaf)) {
        throw new VerificationFault(
          `${which} was changed: its content does not have the recorded hash`,
          'tampered',
          { ...place, expected: toHex(entry.leaf), found: toHex(leaf) },
        );
      }
    } else if (!this.wasDropped(entry)) {
      throw new VerificationFault(
        `the event of ${which} was removed: retention did not drop it`,
        'tampered',
        place,
      );
    }
    const link = this.crypto.linkOf(this.link, entry);
    if (!sameBytes(link, entry.link)) {
      throw new VerificationFault(
        `${which} does not follow entry ${this.seq}: one of the two was changed, inserted or reordered`,
        'tampered',
        { ...place, expected: toHex(link), found: toHex(entry.link) },
      );
    }
    // Releases without a log left unmarked events at its beginning. Later ones are forged.
    const isLate = entry.seq > (this.end?.marked_from ?? Infinity);
    if (entry.unmarked && isLate && !this.crypto.accepted?.has(entry.event_id)) {
      throw new VerificationFault(
        `${which} was inserted: it has no mark of the event keys`,
        'tampered',
        place,
      );
    }
    if (entry.unmarked) this.unmarked += 1;
    this.seq = entry.seq;
    this.link = link;
    this.entries += 1;
  }

  /** The verifier must be at the position of the checkpoint. */
  verifyCheckpoint(checkpoint: SignedCheckpoint): void {
    this.requireTrusted(checkpoint);
    if (checkpoint.seq < this.seq || !sameBytes(checkpoint.link, this.link)) {
      throw new VerificationFault(
        `the log up to entry ${checkpoint.seq} differs from the log signed at ${shortInstant(checkpoint.at)}: it was rewritten`,
        'tampered',
        { seq: checkpoint.seq, expected: toHex(checkpoint.link), found: toHex(this.link) },
      );
    }
    this.checkpoints += 1;
  }

  verifyEnd(end: SignedCheckpoint | undefined): void {
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

  wasDropped({ seq, occurred_at }: Pick<ChainEntry, 'seq' | 'occurred_at'>): boolean {
    return this.drops.some((drop) => seq <= drop.seq && occurred_at < drop.dropped_before);
  }

  requireTrusted(checkpoint: SignedCheckpoint | SignedDrop): void {
    // The links connect a checkpoint to the signed end, so an older key may have signed it.
    const headKey = 'dropped_before' in checkpoint ? this.end?.key_id : undefined;
    const wrong = this.crypto.checkSignature(checkpoint, headKey);
    if (wrong) {
      const kind = wrong.unknownKey ? 'unknown_key' : 'tampered';
      throw new VerificationFault(wrong.sentence, kind, { seq: checkpoint.seq });
    }
    if (checkpoint.org_id !== this.orgId) {
      throw new VerificationFault('a checkpoint is of another organization');
    }
  }

  private explainGap(expected: number, { seq }: ChainEntry): string {
    if (seq < expected) return `entry ${seq} comes after entry ${expected - 1}: the log was reordered`;
    const last = seq - 1;
    return last === expected
      ? `entry ${expected} was removed`
      : `entries ${expected} to ${last} were removed`;
  }
}
