import type { Option } from '../options/option.js';
import { defaultOf, OPTION_NAMES, OPTIONS, type OptionName } from './options.js';

export const PREFIX = 'SANDKEEP_';

/** Variables of commands that are clients of the API. They are no options of the service. */
export const CLIENT_VARIABLES = { url: `${PREFIX}URL`, key: `${PREFIX}API_KEY` };

/** The key of an option in the file: `rate-limit` for `rateLimit`. */
export function keyOf(name: OptionName): string {
  return name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

export function flagOf(name: OptionName): string {
  return `--${keyOf(name)}`;
}

export function variableOf(name: OptionName): string {
  const { variable }: Option = OPTIONS[name];
  return variable ?? `${PREFIX}${keyOf(name).replaceAll('-', '_').toUpperCase()}`;
}

export const FILE_KEYS: ReadonlyMap<string, OptionName> = new Map(
  OPTION_NAMES.filter((name) => !(OPTIONS[name] as Option).outsideFile).map((name) => [keyOf(name), name]),
);

/** The default in words, as help and documents show it. */
export function defaultText(name: OptionName): string {
  const { unset }: Option = OPTIONS[name];
  const value = defaultOf(name, '<data-dir>');
  if (value === undefined) return unset ?? 'none';
  if (Array.isArray(value) && value.length === 0) return 'none';
  return typeof value === 'string' ? value : JSON.stringify(value);
}
