import build from 'fast-json-stringify';
import type { FastifySerializerCompiler } from 'fastify';

type Serializer = (data: unknown) => string;

/** Makes Fastify's serializer compiler. Routes with the same schema share its serializer. */
export function makeSerializerCompiler(): FastifySerializerCompiler<object> {
  const serializers = new WeakMap<object, Serializer>();
  return ({ schema, httpStatus }) => {
    // The error handler renders errors itself.
    if (Number(httpStatus) >= 400) return JSON.stringify;
    const serializer = serializers.get(schema) ?? serializerOf(schema);
    serializers.set(schema, serializer);
    return serializer;
  };
}

/** A serializer that writes only the documented fields. It is compiled at its first use. */
export function serializerOf(schema: object): Serializer {
  let serialize: Serializer | undefined;
  return (data) => {
    serialize ??= compile(schema);
    return serialize(data);
  };
}

function compile(schema: object): Serializer {
  // As in validation.ts: the time of compilations matters more.
  const options = { ajv: { code: { optimize: false } } };
  return build(inOrder(withoutChoices(schema) as Properties), options) as Serializer;
}

interface Properties {
  properties?: object;
  required?: string[];
}

/** The library writes required fields first. A schema whose first field is optional keeps its own order. */
function inOrder(schema: Properties): object {
  const [first] = Object.keys(schema.properties ?? {});
  if (first === undefined || (schema.required ?? []).includes(first)) return schema;
  return { ...schema, required: [] };
}

/**
 * Replaces a choice between an object or an integer and null with `nullable`. For a choice the library would validate
 * the value, and it accepts no bigint as an integer.
 */
function withoutChoices(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(withoutChoices);
  if (typeof schema !== 'object' || schema === null) return schema;
  const { anyOf, type, ...rest } = schema as { anyOf?: { type?: unknown }[]; type?: unknown };
  if (Array.isArray(type) && type.length === 2 && type[0] === 'integer' && type[1] === 'null') {
    return withoutChoices({ ...rest, type: 'integer', nullable: true });
  }
  if (anyOf?.length === 2 && anyOf[0]!.type === 'object' && anyOf[1]!.type === 'null') {
    return withoutChoices({ ...rest, ...anyOf[0], nullable: true });
  }
  return Object.fromEntries(Object.entries(schema).map(([key, part]) => [key, withoutChoices(part)]));
}
