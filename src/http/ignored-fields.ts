import { nearestName, shortened } from '../lib/nearest.js';
import { NO_EFFECT } from './schema.js';

/** A field of a request that changes nothing. The message fits an answer as well as a refusal. */
export interface IgnoredField {
  field: string;
  message: string;
  /** The known field that was probably meant. */
  nearest?: string;
}

interface Schema {
  properties?: Record<string, Schema>;
  additionalProperties?: unknown;
  items?: Schema;
  anyOf?: Schema[];
  oneOf?: Schema[];
  const?: unknown;
  enum?: unknown[];
  [NO_EFFECT]?: string;
}

/** The most fields that are named one by one: each has a message, and a body may have a hundred thousand of them. */
const MOST_NAMED = 50;
/** A list of all known fields helps only where it is short. */
const MOST_LISTED = 8;

/** Fields of a body that its schema does not name, or marks as being without effect. The body has passed the schema. */
export function ignoredFields(schema: Schema, body: unknown): IgnoredField[] {
  const found: IgnoredField[] = [];
  let places: Map<string, string> | undefined;
  visit(schema, body, '');
  return found;

  function visit(part: Schema, value: unknown, path: string): void {
    if (value === null || value === undefined || found.length >= MOST_NAMED) return;
    const reason = part[NO_EFFECT];
    if (reason !== undefined) {
      found.push({ field: path, message: `${path} has no effect: ${reason}` });
    } else if (Array.isArray(value)) {
      for (const { items } of variantsOf(part, value)) {
        // A patch may be a list of millions of bytes, which have no fields.
        if (items && hasFields(items))
          value.forEach((item, index) => visit(items, item, `${path}[${index}]`));
      }
    } else if (typeof value === 'object') {
      const named = variantsOf(part, value).filter(({ properties }) => properties !== undefined);
      // An object without named fields takes any.
      if (named.length === 0) return;
      const known = Object.assign({}, ...named.map(({ properties }) => properties)) as Record<string, Schema>;
      for (const [key, item] of Object.entries(value)) {
        const field = path === '' ? key : `${path}.${key}`;
        if (Object.hasOwn(known, key)) visit(known[key]!, item, field);
        else if (found.length < MOST_NAMED)
          found.push(unknownField(shortened(field), key, path, Object.keys(known)));
      }
    }
  }

  function unknownField(field: string, key: string, path: string, known: string[]): IgnoredField {
    places ??= placesOf(schema);
    const sibling = nearestName(key, known);
    const elsewhere = path === '' ? nearestName(key, [...places.keys()]) : undefined;
    const nearest =
      places.get(key) ??
      (sibling && (path === '' ? sibling : `${path}.${sibling}`)) ??
      (elsewhere && places.get(elsewhere));
    const problem = `there is no field "${field}"`;
    if (nearest !== undefined) return { field, message: `${problem}; did you mean "${nearest}"?`, nearest };
    const listed = known.length > 0 && known.length <= MOST_LISTED ? `; there are ${known.join(', ')}` : '';
    return { field, message: problem + listed };
  }
}

function hasFields({ properties, items, anyOf, oneOf }: Schema): boolean {
  return (properties ?? items ?? anyOf ?? oneOf) !== undefined;
}

/** The forms of a choice that a value may have; those that name another word in a field of theirs are left out. */
function variantsOf(schema: Schema, value: object): Schema[] {
  const choices = schema.anyOf ?? schema.oneOf;
  if (!choices) return [schema];
  return choices.flatMap((choice) => variantsOf(choice, value)).filter((choice) => fits(choice, value));
}

function fits({ properties = {} }: Schema, value: object): boolean {
  return Object.entries(properties).every(([key, property]) => {
    const given = (value as Record<string, unknown>)[key];
    if (given === undefined) return true;
    if ('const' in property) return property.const === given;
    return property.enum === undefined || property.enum.includes(given);
  });
}

/** Where each name stands in a body, outside of lists: the first place in the order of the schema. */
function placesOf(schema: Schema, path = '', places = new Map<string, string>()): Map<string, string> {
  for (const [key, property] of Object.entries(schema.properties ?? {})) {
    if (property[NO_EFFECT] !== undefined) continue;
    const field = path === '' ? key : `${path}.${key}`;
    if (!places.has(key)) places.set(key, field);
    for (const part of [property, ...(property.anyOf ?? [])]) placesOf(part, field, places);
  }
  return places;
}
