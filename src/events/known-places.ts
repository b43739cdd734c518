import { Wrong } from './verify.js';

/** Where a log once was, by a witness outside the database. */
export interface KnownPlace {
  seq: number;
  link: Buffer;
}

/** Who knew places of a log, and which, in order. */
export interface Witness {
  name: string;
  places: AsyncIterator<KnownPlace>;
}

/** Compares a log that is walked with what witnesses know of it. Both methods throw Wrong. */
export class Comparison {
  private readonly next = new Map<Witness, KnownPlace | undefined>();

  constructor(private readonly witnesses: readonly Witness[]) {}

  /** To be called before the first entry. `base`: the log begins behind it; of what lies before, nothing can be said. */
  async begin(base: number): Promise<void> {
    for (const witness of this.witnesses) {
      do await this.advance(witness);
      while ((this.next.get(witness)?.seq ?? Infinity) <= base);
    }
  }

  /** To be called with each entry. */
  async meet(seq: number, link: Buffer): Promise<void> {
    for (const witness of this.witnesses) {
      const known = this.next.get(witness);
      if (known?.seq !== seq) continue;
      if (!known.link.equals(link)) {
        throw new Wrong(`entry ${seq} is not the one that ${witness.name} knows: the log was written anew`);
      }
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
