import fc from 'fast-check';
import { v7 as uuidv7 } from 'uuid';
import { anyCharacter } from './any-character.js';
import { openapi } from './openapi.js';

/** Requests made from openapi.json: most are nearly valid, so that they pass the first check. */
export interface FuzzRequest {
  method: string;
  /** With the query. */
  path: string;
  headers: Record<string, string>;
  body: string | undefined;
}

type Schema = { [key: string]: any };

interface Parameter {
  name: string;
  in: 'path' | 'query' | 'header';
  required?: boolean;
  schema: Schema;
}

const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS'];
const DEEPEST = 4;

const nasty = fc.constantFrom(
  '',
  '0',
  '-1',
  '1e999',
  '0x10',
  '9'.repeat(400),
  'null',
  'true',
  '{}',
  '[]',
  '[[[[[[',
  '{"a":{"b":"c"}}',
  "'",
  '"',
  '%',
  '%00',
  '%zz',
  '\\',
  '\0',
  '..',
  '../..',
  '/',
  '//',
  '.',
  '\u{1f4a9}',
  '\ud800',
  'é',
  '!',
  '!!',
  "'; drop table orgs; --",
  '$1',
  '${x}',
  '<script>',
  'a'.repeat(5_000),
  '__proto__',
  'constructor',
  'NaN',
  '2026-02-30T00:00:00Z',
  '0000-01-01T00:00:00Z',
  '9999-12-31T23:59:59.9999999Z',
  '2026-01-01',
  '127.0.0.1/33',
);
const junk = fc.oneof(nasty, fc.string({ unit: anyCharacter, maxLength: 40 }), fc.string({ maxLength: 20 }));
// Made once, like every arbitrary below: making an arbitrary of texts takes far longer than drawing from it.
const word = fc.stringMatching(/^[a-z][a-z0-9-]{0,12}$/);
const anything: fc.Arbitrary<unknown> = fc.oneof(fc.jsonValue({ maxDepth: 4 }), junk);

/** Draws from `usual` fifteen times in sixteen. */
function mostly<T, U>(usual: fc.Arbitrary<T>, otherwise: fc.Arbitrary<U>): fc.Arbitrary<T | U> {
  return fc.oneof({ weight: 15, arbitrary: usual }, { weight: 1, arbitrary: otherwise });
}

/** A value that mostly matches the schema. */
function valueOf(schema: Schema, depth = 0): fc.Arbitrary<unknown> {
  return mostly(rightValueOf(schema, depth), anything);
}

function rightValueOf(schema: Schema, depth: number): fc.Arbitrary<unknown> {
  if (typeof schema['$ref'] === 'string') {
    const name = schema['$ref'].replace('#/components/schemas/', '');
    return rightValueOf(openapi.components.schemas[name] as Schema, depth);
  }
  const choices: Schema[] | undefined = schema['oneOf'] ?? schema['anyOf'];
  if (choices) return fc.oneof(...choices.map((choice) => rightValueOf(choice, depth)));
  if (schema['enum'] !== undefined) return fc.constantFrom(...schema['enum']);
  if ('const' in schema) return fc.constant(schema['const']);
  const types: string[] = [schema['type'] ?? 'string'].flat();
  return fc.oneof(...types.map((type) => ofType(type, schema, depth)));
}

function ofType(type: string, schema: Schema, depth: number): fc.Arbitrary<unknown> {
  switch (type) {
    case 'object':
      return depth > DEEPEST ? fc.constant({}) : objectOf(schema, depth);
    case 'array':
      return fc.array(valueOf(schema['items'] ?? {}, depth + 1), { maxLength: 3 });
    case 'integer':
    case 'number':
      return fc.oneof(
        fc.integer({ min: schema['minimum'] ?? -10, max: Math.min(schema['maximum'] ?? 4096, 4096) }),
        fc.constantFrom(-1, 0, 2 ** 31, 2 ** 53, 1.5, -0),
      );
    case 'boolean':
      return fc.boolean();
    case 'null':
      return fc.constant(null);
    default:
      return textOf(schema);
  }
}

function objectOf({ properties = {}, required = [], additionalProperties }: Schema, depth: number) {
  const known = Object.fromEntries(
    Object.entries<Schema>(properties).map(([name, schema]) => [name, valueOf(schema, depth + 1)]),
  );
  const fixed = fc.record(known, { requiredKeys: required });
  const more =
    typeof additionalProperties === 'object'
      ? fc.dictionary(junk, valueOf(additionalProperties, depth + 1), { maxKeys: 3 })
      : mostly(fc.constant({}), fc.dictionary(junk, anything, { maxKeys: 2 }));
  return fc.tuple(fixed, more).map(([one, other]) => ({ ...other, ...one }));
}

function textOf({ format, examples }: Schema): fc.Arbitrary<string> {
  if (format === 'uuid') return fc.constantFrom(uuidv7(), '00000000-0000-0000-0000-000000000000');
  if (format === 'date-time') return fc.date({ noInvalidDate: true }).map((date) => date.toISOString());
  return fc.oneof(
    word,
    fc.constantFrom(
      'alpine:3',
      '/data',
      '2026-11-01T00:00:00Z',
      'team',
      '{"team":"ml"}',
      ...(examples ?? []),
    ),
    junk,
  );
}

/** Characters that fetch allows in a header. */
const headerText = fc.oneof(
  fc.stringMatching(/^[!-~]{1,30}$/),
  fc.constantFrom('Lw', 'L2E', '*/*', 'text/csv', 'bytes=0-', 'true', 'x'.repeat(4_000)),
);

/** `ids`: of existing resources. `keys`: for authentication. */
export function fuzzRequest(ids: string[], keys: string[]): fc.Arbitrary<FuzzRequest> {
  const operations = Object.entries(openapi.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method, operation: operation as Schema })),
  );
  const ofEach = operations.map(({ path, method, operation }) => {
    const parameters: Parameter[] = operation['parameters'] ?? [];
    const body: Schema | undefined = operation['requestBody']?.content?.['application/json']?.schema;
    const segment = fc.oneof(
      { weight: 3, arbitrary: fc.constantFrom(...ids) },
      { weight: 1, arbitrary: junk },
    );
    const inQuery = parameters.filter((parameter) => parameter.in === 'query');
    const query = fc.tuple(
      fc.tuple(...inQuery.map((parameter) => fc.option(pairsOf(parameter), { nil: [], freq: 1 }))),
      mostly(fc.constant([]), fc.array(fc.tuple(junk, junk), { maxLength: 2 })),
    );
    const inHeader = parameters.filter((parameter) => parameter.in === 'header').map(({ name }) => name);
    const headerNames = [...inHeader, 'accept', 'x-request-id', 'range', 'content-type', 'idempotency-key'];
    return fc.record({
      method: mostly(fc.constant(method.toUpperCase()), fc.constantFrom(...METHODS)),
      path: fc
        .tuple(fc.array(segment, { minLength: 2, maxLength: 2 }), query)
        .map(([segments, [known, unknown]]) =>
          withQuery(fill(path, segments), [...known.flat(), ...unknown]),
        ),
      headers: fc
        .tuple(
          mostly(fc.constantFrom(...keys), headerText),
          fc.dictionary(fc.constantFrom(...headerNames), headerText, { maxKeys: 2 }),
        )
        .map(([key, headers]) => ({ authorization: `Bearer ${key}`, ...headers })),
      body: mostly(
        (body ? valueOf(body) : fc.constant({})).map((value) => JSON.stringify(value)),
        fc.oneof(junk, fc.constant(undefined)),
      ),
    });
  });
  return fc.oneof(...ofEach);
}

/** A parameter with its possible repetitions, each as text. */
function pairsOf({ name, schema }: Parameter): fc.Arbitrary<[string, string][]> {
  return valueOf(schema).map((value) =>
    (Array.isArray(value) ? value : [value]).map((item): [string, string] => [
      name,
      typeof item === 'string' ? item : JSON.stringify(item),
    ]),
  );
}

function fill(path: string, segments: string[]): string {
  let used = 0;
  return path.replaceAll(/\{\w+\}/g, () => escape(segments[used++ % segments.length]!) || 'x');
}

function withQuery(path: string, pairs: [string, string][]): string {
  const query = pairs.map(([name, value]) => `${escape(name)}=${escape(value)}`).join('&');
  return query === '' ? path : `${path}?${query.slice(0, 12_000)}`;
}

/** Percent-encoding that also accepts an unpaired surrogate. */
function escape(text: string): string {
  return encodeURIComponent(text.toWellFormed());
}
