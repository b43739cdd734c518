import type { Static, TSchema } from 'typebox';
import { shortFromPostgres, shortInstant, type Instant } from '../lib/instant.js';
import type { SandboxSpec } from '../spec/specification.js';
import { encodeSpec, shownSpec } from '../spec/text.js';

/** The columns of a row by name, each as PostgreSQL writes it. */
export type TextRow<Name extends string = string> = Record<Name, string | boolean | null> & {
  spec_format: number | null;
};

/** A field of an answer, from the column of the same name. */
export interface SandboxField<Schema, Stored, Initial = null | undefined> {
  schema: Schema;
  /** The value of a new row. Undefined: the operation that creates the row gives it. */
  initial: Initial;
  /** The column as the driver parses it, and as text for `json`. `s`: the table. */
  parsedColumn: (name: string) => string;
  textColumn: (name: string, limits: { maxSpecBytes?: number }) => string;
  store: (stored: Stored) => unknown;
  present: (stored: Stored) => unknown;
  json: (text: string | boolean | null, row: TextRow) => string;
}

type Kind<Stored> = <Schema extends TSchema>(schema: Schema) => SandboxField<Schema, Stored, undefined>;

function kind<Stored>(
  overrides: Partial<Omit<SandboxField<never, Stored>, 'schema' | 'initial'>>,
): Kind<Stored> {
  const verbatim = {
    parsedColumn: (name: string) => `s.${name}`,
    textColumn: (name: string) => `s.${name}`,
    store: (stored: Stored) => stored,
    present: (stored: Stored) => stored,
    json: (text: string | boolean | null) => JSON.stringify(text),
  };
  return (schema) => ({ schema, initial: undefined, ...verbatim, ...overrides });
}

export const text = kind<string>({});
export const flag = kind<boolean>({ json: String });

/** Text without characters that JSON escapes. */
export const words = <Word extends string>(): Kind<Word> =>
  kind<Word>({ json: (word) => (word === null ? 'null' : `"${word}"`) });

export const instant = kind<Instant>({
  textColumn: (name) => `s.${name}::text as ${name}`,
  present: shortInstant,
  json: (column) => `"${shortFromPostgres(String(column))}"`,
});

/** JSON as `store` writes it, which the column keeps. */
export const object = <Shape>(): Kind<Shape> =>
  kind<Shape>({
    textColumn: (name) => `s.${name}::text as ${name}`,
    store: (stored) => JSON.stringify(stored),
    json: String,
  });

/** The text of a specification that is longer than a read allows. */
export const OMITTED = '';

/** Text in both reads: the JSON parser of the driver rounds large integers. */
export const specification = kind<SandboxSpec>({
  parsedColumn: (name) => `s.${name}::text as ${name}`,
  textColumn: (name, { maxSpecBytes }) =>
    maxSpecBytes === undefined
      ? `s.${name}::text as ${name}`
      : `case when pg_column_size(s.${name}) > ${maxSpecBytes} then '${OMITTED}' else s.${name}::text end as ${name}`,
  store: encodeSpec,
  json: (column, { spec_format }) => shownSpec(String(column), spec_format),
});

/** The same field with null for "none", which is its value in a new row. */
export function nullable<Schema extends TSchema, Stored>(
  of: Kind<Stored>,
  schema: Schema,
): SandboxField<Schema, Stored | null, null> {
  const { store, present, json, ...columns } = of(schema);
  return {
    ...columns,
    initial: null,
    store: (stored) => (stored === null ? null : store(stored)),
    present: (stored) => (stored === null ? null : present(stored)),
    json: (column, row) => (column === null ? 'null' : json(column, row)),
  };
}

type Fields = Record<string, SandboxField<TSchema, never>>;
type StoredOf<Field> = Field extends SandboxField<TSchema, infer Stored, unknown> ? Stored : never;
export type RowOf<F extends Fields> = { -readonly [Name in keyof F]: StoredOf<F[Name]> };
type SchemasOf<F extends Fields> = { [Name in keyof F]: F[Name]['schema'] };
type InitialOf<F extends Fields> = {
  [Name in keyof F as F[Name]['initial'] extends undefined ? never : Name]: null;
};

/** Derives the columns, the schema and both serializers from one list of fields. */
export function shapeOf<const F extends Fields>(fields: F) {
  const entries = Object.entries(fields) as [keyof F & string, SandboxField<TSchema, unknown>][];
  const steps = entries.map(([name, { json }], index) => ({
    opening: `${index === 0 ? '{' : ','}${JSON.stringify(name)}:`,
    name,
    json,
  }));
  return {
    properties: Object.fromEntries(entries.map(([name, { schema }]) => [name, schema])) as SchemasOf<F>,
    initial: Object.fromEntries(
      entries.flatMap(([name, { initial }]) => (initial === undefined ? [] : [[name, initial]])),
    ) as InitialOf<F>,
    parsedColumns: entries.map(([name, field]) => field.parsedColumn(name)).join(', '),
    textColumns: (limits: { maxSpecBytes?: number } = {}) =>
      [...entries.map(([name, field]) => field.textColumn(name, limits)), 's.spec_format'].join(', '),
    columnNames: entries.map(([name]) => name),
    stored: (row: RowOf<F>): unknown[] => entries.map(([name, { store }]) => store(row[name])),
    present: (row: RowOf<F>) =>
      Object.fromEntries(entries.map(([name, { present }]) => [name, present(row[name])])) as {
        [Name in keyof F]: Static<F[Name]['schema']>;
      },
    /** Equal to the schema's serialization of `present`, without its cost, which is most of a read. */
    json(row: TextRow<keyof F & string>): string {
      let json = '';
      for (const step of steps) json += step.opening + step.json(row[step.name], row);
      return `${json}}`;
    },
  };
}
