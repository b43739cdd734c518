import { sameBytes } from '../../lib/bytes.js';
import { shortInstant, type Instant } from '../../lib/instant.js';
import type { ChainPosition } from '../events/chain-text.js';
import type { LogVerifier } from './log-verifier.js';
import { VerificationFault } from './verification-fault.js';

export interface KnownPosition extends ChainPosition {
  occurred_at?: Instant;
}

/** Earlier positions of a log, in order, from a source outside the database: an export or the file of seen heads. */
export interface ReferenceLog {
  name: string;
  positions: AsyncIterator<KnownPosition>;
}

/** Compares a log under verification with reference logs. Its methods throw VerificationFault. */
export class ReferenceComparison {
  private readonly next = new Map<ReferenceLog, KnownPosition | undefined>();

  constructor(private readonly references: readonly ReferenceLog[]) {}

  /** Called before the first entry: retention must have dropped the previous entries. */
  async compareBeginning(verifier: LogVerifier): Promise<void> {
    const { seq: base, link } = verifier.position;
    for (const reference of this.references) {
      await this.advance(reference);
      for (
        let known;
        (known = this.next.get(reference)) && known.seq <= base;
        await this.advance(reference)
      ) {
        const { seq, occurred_at } = known;
        if (seq === base && !sameBytes(known.link, link)) throw rewritten(seq, reference);
        if (occurred_at === undefined || verifier.wasDropped({ seq, occurred_at })) continue;
        throw new VerificationFault(
          `the log begins after entry ${base}, but ${reference.name} has entry ${seq} of ${shortInstant(occurred_at)}: it was removed, and retention did not drop it`,
        );
      }
    }
  }

  async compareEntry({ seq, link }: ChainPosition): Promise<void> {
    for (const reference of this.references) {
      const known = this.next.get(reference);
      if (known?.seq !== seq) continue;
      if (!sameBytes(known.link, link)) throw rewritten(seq, reference);
      await this.advance(reference);
    }
  }

  compareEnd(seq: number): void {
    for (const { name } of this.references.filter((reference) => this.next.get(reference) !== undefined)) {
      throw new VerificationFault(
        `the log ends at entry ${seq}, but ${name} has more entries: its end was cut off, or the database was set back`,
      );
    }
  }

  private async advance(reference: ReferenceLog): Promise<void> {
    const { done, value } = await reference.positions.next();
    this.next.set(reference, done === true ? undefined : value);
  }
}

function rewritten(seq: number, { name }: ReferenceLog): VerificationFault {
  return new VerificationFault(`entry ${seq} differs from that in ${name}: the log was rewritten`);
}
