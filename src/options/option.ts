import type { OptionType } from './types.js';

/** A default in the data directory, whichever that is. */
export class InDataDir {
  constructor(readonly name: string) {}
}

export interface Option<T = unknown> {
  type: OptionType<T>;
  description: string;
  default?: T | InDataDir;
  /** The effect of an option that has no value. */
  unset?: string;
  /** The value, or a part of it, is never printed. */
  secret?: true;
  /** Operations read the value as `ctx.settings.<name>`. */
  setting?: true;
  /** The file cannot have the option. */
  outsideFile?: true;
  /** In place of a name with the prefix SANDKEEP_. */
  variable?: string;
}

/** Options by their names in the code: `rateLimit` is the flag `--rate-limit`. */
export type Options = Readonly<Record<string, Option>>;

type ValueOf<O> = O extends { type: OptionType<infer T> }
  ? O extends { default: unknown }
    ? T
    : T | undefined
  : never;

export type ValuesOf<O extends Options> = { readonly [K in keyof O]: ValueOf<O[K]> };

export const dataFile = (name: string) => new InDataDir(name);
