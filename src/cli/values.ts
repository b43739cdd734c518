import { InvalidArgumentError } from 'commander';
import { parseJson } from '../lib/json.js';

/** Parsers of the values of flags. */

export function wholeNumber(text: string): number {
  if (!/^\d{1,9}$/.test(text)) throw new InvalidArgumentError('It must be a whole number.');
  return Number(text);
}

export function label(text: string): { key: string; value: string } {
  const at = text.indexOf('=');
  if (at < 1) throw new InvalidArgumentError('It must be like team=ml.');
  return { key: text.slice(0, at), value: text.slice(at + 1) };
}

/** For a flag that may be repeated. */
export function addLabel(text: string, before: Record<string, string> = {}): Record<string, string> {
  const { key, value } = label(text);
  return { ...before, [key]: value };
}

export function jsonObject(text: string): object {
  const found = objectIn(text);
  if (!found) throw new InvalidArgumentError('It must be a JSON object, such as {"enabled": false}.');
  return found;
}

/** Undefined: the text has no JSON object. */
export function objectIn(text: string): object | undefined {
  const value = parseJson(text);
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : undefined;
}
