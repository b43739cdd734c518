import { resolve } from 'node:path';
import { parsePairs } from '../lib/pairs.js';

/** The type of an option: the form of its text, on the command line, in the environment and in the file. */
export interface OptionType<T> {
  /** The argument of the flag, as the help shows it. Undefined: the option is a switch. */
  readonly argument: string | undefined;
  /** The accepted form; it follows "it must be". */
  readonly form: string;
  /** The form names every value, so that the help shows it. */
  readonly isChoice?: true;
  /** Undefined: the text does not have the form. */
  parse(text: string): T | undefined;
  /** The text of a value in a file of `directory`. Undefined: the value is of another type. */
  textOf(value: unknown, directory: string): string | undefined;
}

const ON = new Set(['1', 'true', 'yes', 'on']);
const OFF = new Set(['0', 'false', 'no', 'off', '']);
const INTEGER = /^\d{1,9}$/;

function onlyText(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

export function text(argument: string, form: string, pattern = /\S/): OptionType<string> {
  return { argument, form, parse: (value) => (pattern.test(value) ? value : undefined), textOf: onlyText };
}

/** A relative path in a file begins in the directory of the file, elsewhere in the working directory. */
export function path(argument: string): OptionType<string> {
  return {
    ...text(argument, 'a path'),
    textOf: (value, directory) =>
      typeof value === 'string' && value.trim() !== '' ? resolve(directory, value) : undefined,
  };
}

export const urlPrefix: OptionType<string> = {
  argument: '<path>',
  form: 'a path such as /sandkeep',
  parse: (value) => (/^(?:\/\w[\w.~-]*)+$/.test(value) ? value : undefined),
  textOf: onlyText,
};

/** A URL without path, query and credentials. */
export const httpOrigin: OptionType<string> = {
  argument: '<url>',
  form: 'a URL such as http://10.0.0.5:8080, without a path',
  parse(value) {
    if (!URL.canParse(value)) return undefined;
    const { protocol, href, origin } = new URL(value);
    return /^https?:$/.test(protocol) && href === `${origin}/` ? origin : undefined;
  },
  textOf: onlyText,
};

/** A URL with a path, without credentials. An empty text is none. */
export const httpUrl: OptionType<string> = {
  argument: '<url>',
  form: 'a URL such as http://127.0.0.1:4318, without credentials',
  parse(value) {
    if (value.trim() === '') return '';
    if (!URL.canParse(value)) return undefined;
    const { protocol, username, password, search, hash } = new URL(value);
    const isPlain = username === '' && password === '' && search === '' && hash === '';
    return /^https?:$/.test(protocol) && isPlain ? value : undefined;
  },
  textOf: onlyText,
};

/** The form of lists in variables of OpenTelemetry. */
export const pairs: OptionType<string> = {
  argument: '<pairs>',
  form: 'pairs such as name=value,other=value, with values percent-encoded',
  parse: (value) => (parsePairs(value) ? value : undefined),
  textOf: onlyText,
};

export const ratio: OptionType<number> = {
  argument: '<ratio>',
  form: 'a number from 0 to 1',
  parse(value) {
    const number = /^\d{0,1}(\.\d{1,12})?$/.test(value) && value !== '' ? Number(value) : NaN;
    return number >= 0 && number <= 1 ? number : undefined;
  },
  textOf: (value) => (typeof value === 'number' ? String(value) : onlyText(value)),
};

/** `form`: the quantity, such as "a number of seconds". */
export function integer(form: string, min: number, max: number): OptionType<number> {
  return {
    argument: '<n>',
    form: `${form} from ${min} to ${max}`,
    parse(value) {
      const number = INTEGER.test(value) ? Number(value) : NaN;
      return number >= min && number <= max ? number : undefined;
    },
    textOf: (value) => (typeof value === 'number' ? String(value) : onlyText(value)),
  };
}

export function choice<T extends string>(argument: string, choices: readonly T[]): OptionType<T> {
  return {
    argument,
    form: `one of ${choices.map((known) => `"${known}"`).join(', ')}`,
    isChoice: true,
    parse: (value) => choices.find((known) => known === value),
    textOf: onlyText,
  };
}

/** Separated by commas; in the file a list of YAML as well. An empty text is an empty list. */
export function list<T extends string>(
  argument: string,
  form: string,
  parseItem: (item: string) => T | undefined,
): OptionType<readonly T[]> {
  return {
    argument,
    form,
    parse(value) {
      const items = value.trim() === '' ? [] : value.split(',').map((item) => parseItem(item.trim()));
      return items.every((item) => item !== undefined) ? items : undefined;
    },
    textOf: (value) =>
      Array.isArray(value) && value.every((item) => typeof item === 'string')
        ? value.join(',')
        : onlyText(value),
  };
}

export const onOff: OptionType<boolean> = {
  argument: undefined,
  form: 'true or false',
  parse(value) {
    const word = value.trim().toLowerCase();
    return ON.has(word) ? true : OFF.has(word) ? false : undefined;
  },
  textOf: (value) => (typeof value === 'boolean' ? String(value) : onlyText(value)),
};
