import { Type } from 'typebox';
import { expect, test } from 'vitest';
import { Nullable } from '../../src/http/schema.js';
import { nullable, shapeOf, text } from '../../src/sandboxes/row-kinds.js';
import { SANDBOX, SANDBOX_FIELDS } from '../../src/sandboxes/row.js';

test('one line in the list of fields reaches the columns, the schema, new rows and both serializers', () => {
  const shape = shapeOf({
    ...SANDBOX_FIELDS,
    note: nullable(text, Type.Optional(Nullable(Type.String()))),
  });
  const before = SANDBOX.columnNames;
  expect(shape.columnNames).toEqual([...before, 'note']);
  expect(Object.keys(shape.properties)).toEqual([...before, 'note']);
  expect(shape.initial).toEqual({ ...SANDBOX.initial, note: null });
  expect(shape.parsedColumns).toBe(`${SANDBOX.parsedColumns}, s.note`);
  expect(shape.textColumns()).toMatch(/, s\.note, s\.spec_format/);

  const row = {
    ...shape.initial,
    id: 'i',
    org_id: 'o',
    name: 'n',
    slug: 's',
    status: 'created' as const,
    ephemeral: false,
    created_at: '2026-03-01T00:00:00.000000Z',
    note: 'a "note"',
  };
  expect(shape.stored(row).at(-1)).toBe('a "note"');
  const presented = shape.present(row);
  expect(presented).toMatchObject({ created_at: '2026-03-01T00:00:00Z', note: 'a "note"' });
  const texts = { ...row, created_at: '2026-03-01 00:00:00+00', spec_format: null };
  expect(shape.json(texts)).toBe(JSON.stringify(presented));
});
