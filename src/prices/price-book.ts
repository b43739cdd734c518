import type { ErrorObject } from 'ajv';
import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs';
import { Type } from 'typebox';
import { explainFirst, validatorOf } from '../http/validation.js';
import { ExplainedError } from '../lib/explained-error.js';
import { METRICS, readDecimal, type Decimal, type Metric, type PriceBook } from './price.js';
import { parseJson } from '../lib/json.js';

/** A larger file is no price book. */
const LARGEST_BYTES = 64 * 1024;

/** Text, because a JSON number would be rounded to a binary fraction. */
const decimal = Type.String({ pattern: '^[0-9]{1,9}([.][0-9]{1,12})?$' });
const byMetric = Type.Object(
  Object.fromEntries(METRICS.map((metric) => [metric, Type.Optional(decimal)])) as Record<
    Metric,
    ReturnType<typeof Type.Optional<typeof decimal>>
  >,
  { additionalProperties: false },
);
const File = Type.Object(
  {
    currency: Type.String({ pattern: '^[A-Z]{3}$' }),
    minor_unit_digits: Type.Optional(Type.Integer({ minimum: 0, maximum: 4 })),
    prices: byMetric,
    included: Type.Optional(byMetric),
  },
  { additionalProperties: false },
);

const validate = validatorOf(File);

const CURRENCIES = new Set(Intl.supportedValuesOf('currency'));

/** 2 for EUR, 0 for JPY, 3 for KWD. */
function digitsOf(currency: string): number {
  return new Intl.NumberFormat('en', { style: 'currency', currency }).resolvedOptions()
    .maximumFractionDigits!;
}

export function loadPriceBook(file: string): PriceBook {
  return parsePriceBook(readText(file), file);
}

export function parsePriceBook(text: string, file: string): PriceBook {
  const read = parseJson(text.replace(/^\uFEFF/, ''));
  if (read === undefined) throw refused(file, 'it is not valid JSON');
  if (!validate(read))
    throw refused(file, unknownName(validate.errors ?? []) ?? hint(explainFirst(validate.errors ?? [])));
  const { currency, minor_unit_digits, prices, included = {} } = read;
  if (!CURRENCIES.has(currency)) throw refused(file, `there is no currency "${currency}" in ISO 4217`);
  return {
    currency,
    minorUnitDigits: minor_unit_digits ?? digitsOf(currency),
    prices: decimals(prices),
    included: decimals(included),
  };
}

function readText(file: string): string {
  try {
    // Without O_NONBLOCK, opening a pipe would block the start.
    const descriptor = openSync(file, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const stat = fstatSync(descriptor);
      if (!stat.isFile()) throw refused(file, 'it is not a regular file');
      if (stat.size > LARGEST_BYTES) throw refused(file, `it is larger than ${LARGEST_BYTES} bytes`);
      return readFileSync(descriptor, 'utf8');
    } finally {
      closeSync(descriptor);
    }
  } catch (cause) {
    if (cause instanceof ExplainedError) throw cause;
    throw refused(file, (cause as Error).message);
  }
}

function decimals(texts: Partial<Record<Metric, string>>): Record<Metric, Decimal> {
  return Object.fromEntries(METRICS.map((metric) => [metric, readDecimal(texts[metric] ?? '0')])) as Record<
    Metric,
    Decimal
  >;
}

function unknownName(errors: readonly ErrorObject[]): string | undefined {
  const error = errors.find(({ keyword }) => keyword === 'additionalProperties');
  if (!error) return undefined;
  const name = String(error.params['additionalProperty']);
  const [, section] = error.instancePath.split('/');
  return section === undefined
    ? `no field "${name}"; there are ${Object.keys(File.properties).join(', ')}`
    : `no price "${name}" in "${section}"; there are ${METRICS.join(', ')}`;
}

function hint(message: string): string {
  return /pattern|must be a string/.test(message)
    ? `${message} (amounts are text such as "0.0504", at most 9 digits before the point and 12 after it; the currency is three capital letters)`
    : message;
}

function refused(file: string, why: string): ExplainedError {
  return new ExplainedError(`the price book ${file} cannot be used: ${why}`);
}
