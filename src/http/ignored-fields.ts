import { nearestName, shortened } from '../lib/nearest.js';
import { NO_EFFECT, RESTRICTIONS, type Restrictions } from './schema.js';

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
  [RESTRICTIONS]?: Restrictions;
}

interface Findings {
  /** The first unknown field that restricts or gives something. It must not be ignored. */
  refused?: IgnoredField;
  ignored: IgnoredField[];
}

/** The most fields that are named one by one: each has a message, and a body may have a hundred thousand of them. */
const MOST_NAMED = 50;
/** A list of all known fields helps only where it is short. */
const MOST_LISTED = 8;
/** A longer name is cut into words only up to here. */
const MOST_LETTERS = 200;

/** Fields of a body that its schema does not name, or marks as being without effect. The body has passed the schema. */
export function ignoredFields(schema: Schema, body: unknown): Findings {
  const { fields = [], words = [] } = schema[RESTRICTIONS] ?? {};
  const findings: Findings = { ignored: [] };
  const { ignored } = findings;
  let places: Map<string, string> | undefined;
  visit(schema, body, '', false);
  return findings;

  /** `restricts`: the value is a part of a restriction. */
  function visit(part: Schema, value: unknown, path: string, restricts: boolean): void {
    if (value === null || value === undefined || findings.refused) return;
    const mark = part[NO_EFFECT];
    if (mark !== undefined) {
      if (ignored.length < MOST_NAMED)
        ignored.push({ field: path, message: `${path} has no effect: ${mark}` });
    } else if (Array.isArray(value)) {
      for (const { items } of variantsOf(part, value)) {
        // A patch may be a list of millions of bytes, which have no fields.
        if (items && hasFields(items))
          value.forEach((item, index) => visit(items, item, `${path}[${index}]`, restricts));
      }
    } else if (typeof value === 'object') {
      const named = variantsOf(part, value).filter(({ properties }) => properties !== undefined);
      // An object without named fields takes any.
      if (named.length === 0) return;
      const known = Object.assign({}, ...named.map(({ properties }) => properties)) as Record<string, Schema>;
      for (const [key, item] of Object.entries(value)) {
        const field = path === '' ? key : `${path}.${key}`;
        if (Object.hasOwn(known, key)) {
          visit(known[key]!, item, field, restricts || (path === '' && fields.includes(key)));
        } else visitUnknown(key, item, path, Object.keys(known), restricts);
        if (findings.refused) return;
      }
    }
  }

  function visitUnknown(
    key: string,
    value: unknown,
    path: string,
    known: string[],
    restricts: boolean,
  ): void {
    places ??= placesOf(schema);
    const field = shortened(path === '' ? key : `${path}.${key}`);
    // Finding similar names takes time: only those that are named in the answer are searched.
    // An entry of a list has nothing to do with the fields elsewhere.
    const elsewhere = path.includes('[') ? undefined : places.get(key);
    const nearest =
      elsewhere ?? (ignored.length < MOST_NAMED ? similarTo(key, path, known, places) : undefined);
    const mustHold =
      restricts ||
      (nearest !== undefined && fields.includes(topOf(nearest))) ||
      wordsOf(key).some((word) => words.includes(word));
    // Some clients send every field, with null for "not asked for".
    if (mustHold && value !== null) findings.refused = unknownField(field, nearest, known, true);
    else if (ignored.length < MOST_NAMED) ignored.push(unknownField(field, nearest, known, false));
  }
}

function similarTo(
  key: string,
  path: string,
  known: string[],
  places: ReadonlyMap<string, string>,
): string | undefined {
  const sibling = nearestName(key, known);
  if (sibling !== undefined) return path === '' ? sibling : `${path}.${sibling}`;
  const elsewhere = path === '' ? nearestName(key, [...places.keys()]) : undefined;
  return elsewhere && places.get(elsewhere);
}

function unknownField(
  field: string,
  nearest: string | undefined,
  known: string[],
  isRefused: boolean,
): IgnoredField {
  const problem = `there is no field "${field}"`;
  if (nearest !== undefined) return { field, message: `${problem}; did you mean "${nearest}"?`, nearest };
  if (known.length > 0 && known.length <= MOST_LISTED)
    return { field, message: `${problem}; there are ${known.join(', ')}` };
  return { field, message: isRefused ? `${problem}, so it cannot hold: leave it out` : problem };
}

function topOf(place: string): string {
  return place.split('.', 1)[0]!;
}

/** The words of `maxUdpPorts`, `max_udp_ports` and `max-udp-ports`, each as it is and in the singular. */
function wordsOf(name: string): string[] {
  return name
    .slice(0, MOST_LETTERS)
    .replaceAll(/([a-z0-9])([A-Z])/g, '$1_$2')
    .toLowerCase()
    .split(/[^a-z]+/)
    .flatMap((word) => [word, word.replace(/ies$/, 'y').replace(/s$/, '')]);
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
