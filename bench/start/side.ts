/** A way to an isolated process on this machine. */
export interface Side {
  name: string;
  /** Starts one. `running` resolves when it runs, and `output` with the first output of a command in it. */
  start(name: string): Promise<Started>;
  /** Before a burst: lets what was prepared become ready again. */
  settle?(): Promise<void>;
  close(): Promise<void>;
}

export interface Started {
  /** Resolves with the output. */
  exec(): Promise<void>;
  /** Undefined: this side has no such step. */
  stop?(): Promise<void>;
  again?(): Promise<void>;
  remove(): Promise<void>;
}

/** The command of each measured exec. */
export const WORD = 'ready';

export function checkOutput(output: string): void {
  if (output.trim() !== WORD) throw new Error(`a command printed ${JSON.stringify(output)}`);
}
