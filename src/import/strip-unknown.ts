import type { TSchema } from 'typebox';

interface Schema {
  properties?: Record<string, Schema>;
  required?: string[];
  const?: unknown;
  items?: Schema;
  anyOf?: Schema[];
  oneOf?: Schema[];
}

/** Unknown keys may hold secrets or addresses in clear. Objects without named keys stay whole. */
export function stripUnknownFields<T>(schema: TSchema, value: T): T {
  return strip(schema, value) as T;
}

function strip(schema: Schema, value: unknown): unknown {
  const { items, properties } = schema;
  if (Array.isArray(value)) return items ? value.map((item) => strip(items, item)) : value;
  if (typeof value !== 'object' || value === null) return value;
  const variant = (schema.anyOf ?? schema.oneOf)?.find((candidate) => isVariant(candidate, value));
  if (variant) return strip(variant, value);
  if (!properties) return value;
  const entries = Object.entries(value as Record<string, unknown>);
  return Object.fromEntries(
    entries.flatMap(([key, item]) =>
      Object.hasOwn(properties, key) ? [[key, strip(properties[key]!, item)]] : [],
    ),
  );
}

function isVariant({ properties, required = [] }: Schema, value: object): boolean {
  if (!properties) return false;
  return (
    required.every((key) => Object.hasOwn(value, key)) &&
    Object.entries(properties).every(
      ([key, property]) =>
        property.const === undefined || property.const === (value as Record<string, unknown>)[key],
    )
  );
}
