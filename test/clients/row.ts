/** The types of the client table, and functions that make its rows. */

export const OUTCOMES = {
  works: 'works',
  client: 'refused by the client',
  service: 'refused by the service',
  notYet: 'not yet',
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
  client: 'cli' | 'node' | 'python';
  /** The arguments of `msb`, divided by blanks, or the statements of a program that uses an SDK. */
  run: string;
}

/** Rows that run one after the other in an organization of their own. */
export interface Session {
  title: string;
  /** Files in the working directory of the CLI. */
  files?: Record<string, string>;
  rows: Row[];
}

export const works = (output: Expected['output'] = ''): Expected => ({ outcome: 'works', exit: 0, output });
export const clientRefuses = (output: Expected['output']): Expected => ({
  ...{ outcome: 'client', exit: 1, output },
});
export const serviceRefuses = (output: Expected['output']): Expected => ({
  ...{ outcome: 'service', exit: 1, output },
});
export const notYet = (output: Expected['output']): Expected => ({ outcome: 'notYet', exit: 1, output });

/** A command of the CLI. `docker` defaults to the outcome on the simulated runtime. */
export const msb = (run: string, simulated: Expected, docker = simulated): Row => ({
  ...{ client: 'cli', run, simulated, docker },
});

/** A program that uses the Node SDK. `docker` defaults to the outcome on the simulated runtime. */
export const node = (run: string, simulated: Expected, docker = simulated): Row => ({
  ...{ client: 'node', run, simulated, docker },
});

/** A program that uses the Python SDK, with the same outcome on both runtimes. */
export const python = (run: string, expected: Expected): Row => ({
  ...{ client: 'python', run, simulated: expected, docker: expected },
});

export function only(runtime: RuntimeName, { client, run, [runtime]: expected }: Row): Row {
  return { client, run, [runtime]: expected! };
}
