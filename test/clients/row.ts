/** The types of the client table, and functions that make its rows. */

export const OUTCOMES = {
  works: 'works',
  client: 'refused by the client',
  service: 'refused by the service',
} as const;

export interface Expected {
  outcome: keyof typeof OUTCOMES;
  exit: number;
  /** A string is the complete output, with each stretch of white space as one blank. */
  output: string | RegExp;
}

export const RUNTIMES = ['simulated', 'docker'] as const;
export type RuntimeName = (typeof RUNTIMES)[number];

export interface Row extends Partial<Record<RuntimeName, Expected>> {
  /** `newest-cli`: the CLI of the Python package. */
  client: 'cli' | 'node' | 'python' | 'newest-cli';
  /**
   * The arguments of `msb`, divided by blanks outside single quotes, or the statements of a program that uses an SDK.
   */
  run: string;
  /** The standard input of the CLI. */
  input?: string;
  /** So many bytes of zeroes are the standard input of the CLI. */
  zeroes?: number;
  /** The standard input of the CLI is a pipe that nobody closes. */
  leavesInputOpen?: boolean;
  /** The CLI runs in a terminal of 30 rows and 100 columns. Each line is typed at the next prompt of the shell. */
  typed?: readonly string[];
}

/** Rows that run one after the other in an organization of their own. */
export interface Session {
  title: string;
  /** Files in the working directory of the CLI. */
  files?: Record<string, string>;
  rows: Row[];
}

export const works = (output: Expected['output'] = '', exit = 0): Expected => ({
  outcome: 'works',
  exit,
  output,
});
export const clientRefuses = (output: Expected['output']): Expected => ({
  outcome: 'client',
  exit: 1,
  output,
});
export const serviceRefuses = (output: Expected['output']): Expected => ({
  outcome: 'service',
  exit: 1,
  output,
});

/** A command of the CLI. `docker` defaults to the outcome on the simulated runtime. */
export const msb = (run: string, simulated: Expected, docker = simulated): Row => ({
  client: 'cli',
  run,
  simulated,
  docker,
});

/** A command of the newest CLI. `docker` defaults to the outcome on the simulated runtime. */
export const newestMsb = (run: string, simulated: Expected, docker = simulated): Row => ({
  client: 'newest-cli',
  run,
  simulated,
  docker,
});

/** A program that uses the Node SDK. `docker` defaults to the outcome on the simulated runtime. */
export const node = (run: string, simulated: Expected, docker = simulated): Row => ({
  client: 'node',
  run,
  simulated,
  docker,
});

/** A program that uses the Python SDK. `simulated` defaults to the outcome on Docker. */
export const python = (run: string, docker: Expected, simulated = docker): Row => ({
  client: 'python',
  run,
  simulated,
  docker,
});

export function only(runtime: RuntimeName, row: Row): Row {
  const chosen = { ...row };
  for (const name of RUNTIMES) if (name !== runtime) delete chosen[name];
  return chosen;
}

/** Rows that the simulated runtime skips. */
export const onDocker = (...rows: Row[]): Row[] => rows.map((row) => only('docker', row));

/** The CLI with a standard input. */
export const piped = (input: string, row: Row): Row => ({ ...row, input });

/** The CLI in a terminal. */
export const typing = (typed: readonly string[], row: Row): Row => ({ ...row, typed });
