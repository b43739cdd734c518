export interface Outcome {
  code: number;
  /** The length of the standard output. */
  bytes: number;
  firstByteMs: number;
  /** From the first step of the client to the exit. */
  ms: number;
}

/** A way to run commands in a container. */
export interface Side {
  readonly name: string;
  run(args: readonly string[]): Promise<Outcome>;
  /** Runs a command with so many bytes of input. */
  send(args: readonly string[], bytes: number): Promise<Outcome>;
}
