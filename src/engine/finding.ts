/** An answer of `sandkeep doctor`. */
export interface Finding {
  check: string;
  /** `missing`: the service works, with fewer features or at a risk. */
  state: 'ok' | 'missing' | 'broken';
  found: string;
  /** A command, or the steps where no command does it. Every finding that is not `ok` has a remedy. */
  remedy?: string;
}
