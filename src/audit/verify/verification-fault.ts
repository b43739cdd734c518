/**
 * `altered`: the schema differs from the migrations. `unknown_key`: a key that is not trusted signed the log.
 * `unsealed`: events wait too long for the sealer.
 */
export type FaultKind = 'tampered' | 'altered' | 'unknown_key' | 'unsealed';

export interface FaultPlace {
  seq: number;
  event_id?: string;
  /** The recorded or required value, and the one that was computed or read. */
  expected?: string;
  found?: string;
}

export class VerificationFault extends Error {
  constructor(
    message: string,
    readonly fault: FaultKind = 'tampered',
    readonly place?: FaultPlace,
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
