import { shortInstant, type Instant } from '../../lib/instant.js';
import { Wrong, type Walk } from './walk.js';

/** Where a log once was, by a witness outside the database. */
export interface KnownPlace {
  seq: number;
  link: Buffer;
  /** Of its event, where it is known. */
  occurred_at?: Instant;
}

/** Who knew places of a log, and which, in order. */
export interface Witness {
  name: string;
  places: AsyncIterator<KnownPlace>;
}

/** Compares a log that is walked with what witnesses know of it. Its methods throw Wrong. */
export class Comparison {
  private readonly next = new Map<Witness, KnownPlace | undefined>();

  constructor(private readonly witnesses: readonly Witness[]) {}

  /** To be called before the first entry, with the walk that begins there. What lies before must have been due. */
  async begin(walk: Walk): Promise<void> {
    const { seq: base, link } = walk.place;
    for (const witness of this.witnesses) {
      await this.advance(witness);
      for (let known; (known = this.next.get(witness)) && known.seq <= base; await this.advance(witness)) {
        const { seq, occurred_at } = known;
        if (seq === base && !known.link.equals(link)) throw rewritten(seq, witness);
        if (occurred_at === undefined || walk.wasDropped({ seq, occurred_at })) continue;
        throw new Wrong(
          `the log begins after entry ${base}, and ${witness.name} knows entry ${seq} of ${shortInstant(occurred_at)}: it was removed, and retention did not drop it`,
        );
      }
    }
  }

  /** To be called with each entry. */
  async meet(seq: number, link: Buffer): Promise<void> {
    for (const witness of this.witnesses) {
      const known = this.next.get(witness);
      if (known?.seq !== seq) continue;
      if (!known.link.equals(link)) throw rewritten(seq, witness);
      await this.advance(witness);
    }
  }

  /** To be called behind the last entry. */
  finish(seq: number): void {
    for (const { name } of this.witnesses.filter((witness) => this.next.get(witness) !== undefined)) {
      throw new Wrong(
        `the log ends at entry ${seq}, and ${name} knows more of it: its end was cut off, or the database was put back`,
      );
    }
  }

  private async advance(witness: Witness): Promise<void> {
    const { done, value } = await witness.places.next();
    this.next.set(witness, done === true ? undefined : value);
  }
}

function rewritten(seq: number, { name }: Witness): Wrong {
  return new Wrong(`entry ${seq} is not the one that ${name} knows: the log was written anew`);
}
