/** A command: its words, or a text for the shell. */
export type Form = { words: string[] } | { script: string };

interface Copy {
  type: 'copy';
  keyword: 'COPY' | 'ADD';
  /** A stage, an image or a template, as it is written. Null: the context. */
  from: string | null;
  /** Unexpanded, as the other words. */
  sources: string[];
  target: string;
  owner: string | null;
  mode: number | null;
}

/** `value`: unexpanded. */
export interface Pair {
  key: string;
  value: string;
}

type Part =
  | { type: 'from'; image: string; name: string | null }
  | { type: 'run'; form: Form }
  | Copy
  | { type: 'env' | 'label'; pairs: Pair[] }
  | { type: 'arg'; args: { name: string; value: string | null }[] }
  | { type: 'workdir'; path: string }
  | { type: 'user'; user: string }
  | { type: 'shell'; words: string[] }
  | { type: 'cmd' | 'entrypoint'; form: Form }
  | { type: 'expose'; ports: string[] };

/** `line`: counted from 1. `text`: for people, on one line. */
export type Instruction = Part & { line: number; text: string };
export type InstructionOf<Type extends Part['type']> = Extract<Instruction, { type: Type }>;

export interface Dockerfile {
  escape: string;
  instructions: Instruction[];
}
