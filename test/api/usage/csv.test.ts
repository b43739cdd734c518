import { parse } from 'csv-parse/sync';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { csvFieldSql, csvLines } from '../../../src/lib/csv.js';
import { anyCharacter } from '../../support/any-character.js';
import { startTestService, type TestService } from '../../support/service.js';

let service: TestService;
beforeAll(async () => {
  service = await startTestService({ worker: false });
});
afterAll(() => service.close());

const FORMULA_STARTS = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];
const SPACES = [
  '\t',
  '\n',
  '\v',
  '\f',
  '\r',
  ' ',
  '\u0085',
  '\u00a0',
  '\u2003',
  '\u2028',
  '\u3000',
  '\ufeff',
];
/** Any text that PostgreSQL can store, often of characters that mean something in CSV or in a spreadsheet. */
const text = fc.oneof(
  fc.string({ unit: anyCharacter }).map((value) => value.replaceAll('\0', '')),
  fc
    .array(fc.constantFrom(...FORMULA_STARTS, ...SPACES, "'", '"', ',', '\r\n', '\\', '&', 'a', '1', '😀'))
    .map((units) => units.join('')),
);

/** The fields as PostgreSQL writes them. */
async function fieldsInSql(texts: readonly string[]): Promise<string[]> {
  const { rows } = await service.ctx.pool.query<{ field: string }>(
    `select ${csvFieldSql('t.value')} as field from unnest($1::text[]) with ordinality as t (value, n) order by t.n`,
    [texts],
  );
  return rows.map(({ field }) => field);
}

const read = (csv: string): string[][] => parse(csv, { record_delimiter: '\r\n' });

/** The text that a field of a report stands for: without the apostrophe that escapes it. */
const unescaped = (field: string) => field.replace(/^'/, '');

test('the CSV of PostgreSQL and of the service have the same fields, and every text can be read back', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.tuple(text, text), { minLength: 1 }), async (pairs) => {
      const fields = await fieldsInSql(pairs.flat());
      const sql = pairs.map((_, row) => `${fields[2 * row]},${fields[2 * row + 1]}\r\n`).join('');
      const records = read(csvLines(pairs));
      expect(read(sql)).toEqual(records);
      expect(records.map((record) => record.map(unescaped))).toEqual(pairs);
    }),
    { numRuns: 300 },
  );
});

test('no text begins as a formula in a spreadsheet, even after white space', async () => {
  const texts = FORMULA_STARTS.flatMap((start) => [start, ...SPACES.map((space) => `${space}${start}1`)]);
  const written = read(csvLines(texts.map((value) => [value]))).map(([field]) => field);
  expect(written).toEqual(texts.map((value) => `'${value}`));
  expect(read((await fieldsInSql(texts)).join('\r\n')).map(([field]) => field)).toEqual(written);
});

test('ordinary values are written as they are, negative numbers too', () => {
  expect(
    csvLines([
      ['name', 'amount'],
      ['a b', -2],
      ['say "hi", you', 1.5],
      ['', 0],
    ]),
  ).toBe('name,amount\r\na b,-2\r\n"say ""hi"", you",1.5\r\n,0\r\n');
});
