/** `altered`: the schema differs from the migrations. `unknown_key`: a key that is not trusted signed the log. `unsealed`: events wait too long for the sealer. */
export type FaultKind = 'tampered' | 'altered' | 'unknown_key' | 'unsealed';

export class VerificationFault extends Error {
  constructor(
    message: string,
    readonly fault: FaultKind = 'tampered',
  ) {
    super(message);
  }
}

export interface Verdict {
  entries: number;
  checkpoints: number;
  /** Entries without a valid mark. Releases without a log wrote such events. */
  unmarked: number;
  /** The first fault, as a sentence; null: the log is in order. */
  wrong: string | null;
  fault: FaultKind | null;
}
