import type { OptionType } from './option-types.js';

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

export const dataFile = (name: string) => new InDataDir(name);
