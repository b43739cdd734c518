import { Type, type Static, type TProperties, type TSchema } from 'typebox';
import type { Integer } from '../lib/exact-json.js';
import { PAGE_LIMIT } from '../lib/page.js';

const INT32_MAX = 2_147_483_647;

/** The keyword of `documented`. */
export const DOCUMENTED = 'x-documented';

/** The keyword of `Restrictions`. */
export const RESTRICTIONS = 'x-restrictions';

/**
 * The fields of a request that limit something or give something. No request may get less or more than it asked for. So
 * an unknown field is refused in one of `fields`, where its name is like one in them, or has one of `words`.
 */
export interface Restrictions {
  readonly fields: readonly string[];
  /** In the singular, of restrictions that other services have. */
  readonly words: readonly string[];
}

/** An object whose title makes it a component of the OpenAPI document, referred to by that name. */
export function Named<T extends TProperties>(
  title: string,
  properties: T,
  description?: string,
  options: { [RESTRICTIONS]?: Restrictions; [DOCUMENTED]?: object } = {},
) {
  return Type.Object(properties, {
    title,
    ...(description === undefined ? {} : { description }),
    ...options,
  });
}

/**
 * Describes one field. A component has a description of its own, so the field's goes into `$comment`, which validators
 * ignore.
 */
export function Field<T extends TSchema>(schema: T, description: string) {
  const isComponent = 'title' in schema;
  return Type.Unsafe<Static<T>>({ ...schema, [isComponent ? '$comment' : 'description']: description });
}

/** With a title it is a component of the OpenAPI document. */
export function Words<const T extends string[]>(
  words: T,
  options: { title?: string; description?: string } = {},
) {
  return Type.Unsafe<T[number]>({ type: 'string', enum: words, ...options });
}

/** The schema or null, as `type: [.., 'null']` where that says it all. */
export function Nullable<T extends TSchema>(schema: T) {
  const { type, enum: words, title } = schema as { type?: unknown; enum?: unknown; title?: unknown };
  if (typeof type === 'string' && words === undefined && title === undefined) {
    return Type.Unsafe<Static<T> | null>({ ...schema, type: [type, 'null'] });
  }
  return Type.Unsafe<Static<T> | null>({ anyOf: [schema, { type: 'null' }] });
}

/** Objects with a discriminator `key`, so that a refusal names a field of the intended variant. */
export function Variants<const T extends TSchema[]>(
  key: string,
  variants: T,
  options: { title?: string; description?: string } = {},
) {
  return Type.Unsafe<Static<T[number]>>({
    type: 'object',
    required: [key],
    oneOf: variants,
    discriminator: { propertyName: key },
    ...options,
  });
}

export function Int32(
  options: { minimum?: number; maximum?: number; default?: number; description?: string } = {},
) {
  return Type.Integer({ format: 'int32', minimum: 0, maximum: INT32_MAX, ...options });
}

/** An int64 as JSON numbers carry it: exact up to 2^53 - 1, refused above rather than rounded. */
export function Int64(options: { minimum?: number; default?: number; description?: string } = {}) {
  return Type.Integer({ format: 'int64', minimum: 0, maximum: Number.MAX_SAFE_INTEGER, ...options });
}

/**
 * An unsigned integer of 64 bits: a bigint beyond 2^53 - 1. `isUint64` checks its maximum, because a schema has only
 * numbers.
 */
export function Uint64(options: { description?: string } = {}) {
  return Type.Unsafe<Integer>({ type: 'integer', format: 'int64', minimum: 0, ...options });
}

const UINT64_MAX = 2n ** 64n - 1n;

/** For an integer that a schema has found to be 0 or more: it has 64 bits and was not rounded. */
export function isUint64(value: Integer): boolean {
  return typeof value === 'bigint' ? value <= UINT64_MAX : Number.isSafeInteger(value);
}

/** The keyword that marks a field as accepted without effect, and says why. */
export const NO_EFFECT = 'x-no-effect';

/**
 * A field that changes nothing here. An answer to a request that sets it has a warning.
 */
export function NoEffect<T extends TSchema>(schema: T, reason: string) {
  const description = `Accepted without effect: ${reason}.`;
  return Type.Unsafe<Static<T>>({ ...schema, [NO_EFFECT]: reason, description });
}

/** For the options of `Named`. */
export function restricting(restrictions: Restrictions) {
  return { [RESTRICTIONS]: restrictions };
}

/**
 * Describes the form of a value that its operation checks itself, with an error of its own. Validators ignore it; the
 * OpenAPI document has it as a part of the schema.
 */
export function documented(schema: Record<string, unknown>) {
  return { [DOCUMENTED]: schema };
}

export function StringMap(options: { description?: string; [DOCUMENTED]?: object } = {}) {
  return Type.Unsafe<Record<string, string>>({
    type: 'object',
    additionalProperties: { type: 'string' },
    ...options,
  });
}

export function AnyObject(options: { description?: string } = {}) {
  return Type.Unsafe<Record<string, unknown>>({ type: 'object', additionalProperties: true, ...options });
}

export const Uuid = Type.String({ format: 'uuid' });
export const DateTime = Type.String({ format: 'date-time' });

export const MessageResponse = Named(
  'MessageResponse',
  { message: Type.String({ description: 'What was done, in a sentence for people.' }) },
  'The answer of an operation that returns no object.',
);

export const ErrorResponse = Named(
  'ErrorResponse',
  {
    error: Type.Object(
      {
        code: Type.String({ description: 'A stable word for programs, such as `invalid_request`.' }),
        message: Type.String({ description: 'The reason in a sentence for people. It may change.' }),
        details: Type.Optional(
          Nullable(AnyObject({ description: 'Context for programs. Its keys depend on the code.' })),
        ),
      },
      { description: 'The reason for the refusal.' },
    ),
  },
  'The body of every answer that is not 2xx.',
);

export const PageQuery = {
  cursor: Type.Optional(
    Type.String({
      minLength: 1,
      description:
        'The `next_cursor` of the previous page. It is opaque and valid only with the same filters and sort.',
    }),
  ),
  limit: Type.Optional(
    Type.Integer({
      format: 'int64',
      minimum: 1,
      maximum: PAGE_LIMIT.max,
      default: PAGE_LIMIT.default,
      description: `The number of items on a page, 1 to ${PAGE_LIMIT.max}.`,
    }),
  ),
};

export type PageQuery = Static<ReturnType<typeof Type.Object<typeof PageQuery>>>;

/** A page of `items`. `next_cursor` is null on the last one. */
export function PageOf<T extends TSchema>(title: string, items: T) {
  return Named(
    title,
    {
      data: Type.Array(items, { description: 'The items of this page, in the order of the list.' }),
      has_more: Type.Boolean({ description: 'Whether another page follows.' }),
      next_cursor: Type.Optional(
        Nullable(Type.String({ description: 'The `cursor` for the next page. Null on the last page.' })),
      ),
    },
    'One page of a list.',
  );
}

/** A query parameter that may be given several times. */
export function Repeatable<T extends TSchema>(schema: T, description: string) {
  return Type.Optional(Type.Array(schema, { minItems: 1, maxItems: 50, description }));
}
