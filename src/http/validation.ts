import { Ajv, type ErrorObject, type ValidateFunction } from 'ajv';
import formats from 'ajv-formats';
import type { FastifySchemaCompiler } from 'fastify';
import type { Static, TSchema } from 'typebox';
import { rounded } from '../lib/exact-json.js';
import { shortened, suggestion } from '../lib/nearest.js';
import { findUnstorable } from '../lib/storable-text.js';
import { UUID_PATTERN } from '../lib/uuid.js';
import { ApiError } from './errors.js';
import { formTexts, sampleText, variantNames } from './sample.js';
import { DOCUMENTED, NO_EFFECT, RESTRICTIONS } from './schema.js';

/** `strictRequired` would want the discriminating property to be declared beside the variants that declare it. */
const common = {
  strict: true,
  strictRequired: false,
  discriminator: true,
  allowUnionTypes: true,
  // An error has its schema, from which the message shows the shape that is wanted.
  verbose: true,
  // The passes of the library over its code double the time of a compilation, at each start of a process. They make a
  // validation of half a microsecond 0.1 microseconds shorter.
  code: { optimize: false },
} as const;

/** For bodies, without coercion. */
const strict = withFormats(new Ajv(common));
/** For URLs, where numbers and booleans are text, and one value may be a list of one. */
const coercing = withFormats(new Ajv({ ...common, coerceTypes: 'array' }));

function withFormats(ajv: Ajv): Ajv {
  formats.default(ajv);
  // The format of the library accepts urn:uuid:…, which PostgreSQL refuses.
  ajv.addFormat('uuid', UUID_PATTERN);
  ajv.addFormat('password', true);
  ajv.addKeyword(NO_EFFECT);
  ajv.addKeyword(RESTRICTIONS);
  ajv.addKeyword(DOCUMENTED);
  return ajv;
}

/** Makes a validator that throws the refusal itself, which names the parameter or field. */
export const validatorCompiler: FastifySchemaCompiler<TSchema> = ({ schema, httpPart }) => {
  const inBody = httpPart === 'body';
  const validate = compileAtFirstUse(inBody ? strict : coercing, schema);
  const { properties = {} } = schema as { properties?: Record<string, { type?: unknown }> };
  const known = Object.keys(properties);
  const whole = known.filter((name) => properties[name]!.type === 'integer');
  return (data: unknown) => {
    if (inBody && data == null)
      throw new ApiError('invalid_request', 'the request needs a JSON object as its body');
    const unstorable = findUnstorable(data);
    if (unstorable !== undefined) {
      throw refusal(
        inBody,
        unstorable,
        `${shortened(unstorable) || 'a name'} must not contain U+0000 or half of a surrogate pair`,
      );
    }
    const notWhole = inBody
      ? undefined
      : whole.find((name) => !isWhole((data as Record<string, unknown>)[name]));
    if (notWhole !== undefined) throw refusal(inBody, notWhole, `${notWhole} must be a whole number`);
    // A bigint is no integer for the validator. Its bounds are judged by the nearest number.
    if (validate(data) || (inBody && validate(rounded(data)))) return { value: data };
    const error = mostSpecific(validate.errors ?? []);
    throw refusal(inBody, nameOf(error, inBody), explain(error, inBody, known));
  };
};

/**
 * Coercion alone would read `0x10` as 16, `1e1` as 10, and take `1e999`, which is infinite, for an integer below 100.
 */
function isWhole(value: unknown): boolean {
  return typeof value !== 'string' || /^-?\d{1,15}$/.test(value);
}

export interface Validator<T> {
  (data: unknown): data is T;
  errors?: ErrorObject[] | null | undefined;
}

/** For values that are no request. */
export function validatorOf<S extends TSchema>(schema: S): Validator<Static<S>> {
  return compileAtFirstUse(strict, schema);
}

/** Most processes use few schemas: to compile all would take a third of the time of their start. */
function compileAtFirstUse<T>(ajv: Ajv, schema: TSchema): Validator<T> {
  let compiled: ValidateFunction<T> | undefined;
  const validate: Validator<T> = (data): data is T => {
    compiled ??= ajv.compile<T>(schema);
    const isValid = compiled(data);
    validate.errors = compiled.errors;
    return isValid;
  };
  return validate;
}

/** Explains the first error that a function of `compile` left, in one sentence. */
export function explainFirst(errors: ErrorObject[]): string {
  return explain(mostSpecific(errors), true, []);
}

function refusal(inBody: boolean, path: string, message: string): ApiError {
  return new ApiError('invalid_request', message, { [inBody ? 'field' : 'parameter']: shortened(path) });
}

/** Every branch of an `anyOf` leaves an error. The deepest one is meant; if several are, the choice itself is named. */
function mostSpecific(errors: ErrorObject[]): ErrorObject {
  const telling = errors.filter(({ keyword, params }) => !(keyword === 'type' && params['type'] === 'null'));
  const candidates = telling.length > 0 ? telling : errors;
  const best = candidates.reduce((deepest, error) =>
    error.instancePath.split('/').length > deepest.instancePath.split('/').length ? error : deepest,
  );
  const there = candidates.filter(({ instancePath }) => instancePath === best.instancePath);
  return there.find((error) => error.keyword === 'anyOf' && formsOf(error).length > 1) ?? best;
}

/** The forms of a choice, without null. */
function formsOf({ parentSchema }: ErrorObject): { type?: unknown }[] {
  const { anyOf = [] } = (parentSchema ?? {}) as { anyOf?: { type?: unknown }[] };
  return anyOf.filter(({ type }) => type !== 'null');
}

/** `/mounts/0/guest` as `mounts[0].guest`; of a missing or unknown property, the path to where it would stand. */
function pathOf({ instancePath, params }: ErrorObject): string {
  const property = (params['missingProperty'] ?? params['additionalProperty'] ?? params['tag']) as
    string | undefined;
  const path = [...instancePath.split('/').slice(1), ...(property === undefined ? [] : [property])]
    .map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'))
    .map((part, index) => (/^\d+$/.test(part) ? `[${part}]` : index === 0 ? part : `.${part}`))
    .join('');
  return shortened(path);
}

/** A query parameter that is given several times is still one parameter. */
function nameOf(error: ErrorObject, inBody: boolean): string {
  const path = pathOf(error);
  return inBody ? path : path.replace(/\[\d+\]$/, '');
}

function explain(error: ErrorObject, inBody: boolean, known: string[]): string {
  const path = nameOf(error, inBody);
  const { keyword, params } = error;
  switch (keyword) {
    case 'required':
      return explainMissing(error, path);
    case 'additionalProperties':
      if (inBody) return `there is no field "${path}"; ${suggestion(path, known)}`;
      return known.length === 0
        ? `there is no query parameter "${path}": this route takes none`
        : `there is no query parameter "${path}"; there are ${known.join(', ')}`;
    case 'enum':
      return `${path} must be one of ${(params['allowedValues'] as unknown[]).join(', ')}`;
    case 'const':
      return `${path} must be ${JSON.stringify(params['allowedValue'])}`;
    case 'discriminator':
      return `${path} must be one of ${variantNames(error.parentSchema ?? {}, params['tag'] as string).join(', ')}`;
    case 'format':
      return params['format'] === 'uuid'
        ? `${path} must be a UUID`
        : `${path} must be a ${params['format'] as string}`;
    case 'minLength':
      return `${path} must not be empty`;
    case 'anyOf':
    case 'oneOf':
      return `${path} has none of its forms: ${formTexts(error.parentSchema ?? {}).join(', ')}`;
    case 'type':
      return explainType(error, path || (inBody ? 'the body' : 'the query'));
    default:
      return `${path || (inBody ? 'the body' : 'the query')} ${error.message ?? 'is not valid'}`;
  }
}

function explainMissing({ params, parentSchema = {} }: ErrorObject, path: string): string {
  const name = params['missingProperty'] as string;
  const { discriminator, properties } = parentSchema as {
    discriminator?: { propertyName: string };
    properties?: Record<string, { type?: unknown }>;
  };
  if (discriminator?.propertyName === name)
    return `${path} is required: one of ${variantNames(parentSchema, name).join(', ')}`;
  const missing = properties?.[name];
  const sample = missing?.type === 'object' ? sampleText(missing) : undefined;
  return sample === undefined ? `${path} is required` : `${path} is required, such as ${sample}`;
}

const KINDS: Record<string, string> = { object: 'an object', array: 'a list', integer: 'a whole number' };

function explainType({ params, parentSchema }: ErrorObject, path: string): string {
  const types = [params['type'] as string | string[]].flat().flatMap((type) => type.split(','));
  const wanted = types.map((type) => KINDS[type] ?? (type === 'null' ? type : `a ${type}`)).join(' or ');
  const isOpen = types.includes('object') || types.includes('array');
  const sample = isOpen && parentSchema ? sampleText(parentSchema) : undefined;
  return `${path} must be ${wanted}${sample === undefined ? '' : `, such as ${sample}`}`;
}
