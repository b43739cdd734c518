import type { OptionName } from '../src/config/options.js';
import { CATALOGUE, type ErrorName } from '../src/http/errors.js';

/** The answer beyond a limit: an error of the catalogue, or a sentence. */
export type Answer = { error: ErrorName } | string;

export function answerText(answer: Answer): string {
  if (typeof answer === 'string') return answer;
  return `${CATALOGUE[answer.error].status} \`${answer.error}\``;
}

export function number(value: number): string {
  return value.toLocaleString('en-US');
}

export function bytes(value: number): string {
  const units = ['bytes', 'KiB', 'MiB', 'GiB'];
  let unit = 0;
  while (value >= 1024 && value % 1024 === 0 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${number(value)} ${units[unit]}`;
}

export function time(millis: number): string {
  const [unit, size] = (
    [
      ['d', 86_400_000],
      ['h', 3_600_000],
      ['min', 60_000],
      ['s', 1_000],
      ['ms', 1],
    ] as const
  ).find(([, each]) => millis % each === 0)!;
  return `${number(millis / size)} ${unit}`;
}

export interface Limit {
  limit: string;
  /** The value that the code uses: a text with the constant in it. */
  value: string;
  option?: OptionName;
  beyond: Answer;
}
