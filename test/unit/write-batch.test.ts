import { expect, test } from 'vitest';
import type { EventSql } from '../../src/db/transaction.js';
import { notify, write, WriteBatch } from '../../src/db/write-batch.js';

function recorder() {
  const sent: { text: string; values: unknown[] }[] = [];
  const tx: EventSql = {
    eventMarker: undefined,
    query: (statement, values = []) => {
      sent.push(
        typeof statement === 'string'
          ? { text: statement, values: [...values] }
          : { text: statement.text, values: statement.values },
      );
      return Promise.resolve({ rows: [], rowCount: 0 });
    },
  };
  return { tx, sent };
}

const CALL = 'select pg_notify(channel, payload) from unnest($3::text[], $4::text[]) as n (channel, payload)';

test('a batch sends its statements as one, with the notifications last', async () => {
  const { tx, sent } = recorder();
  const batch = new WriteBatch(tx);
  await notify(batch, 'changes', ['x']);
  await write(batch, (p) => `insert into a values (${p(1)})`);
  await write(batch, (p) => `update b set c = ${p(2)}`);
  expect(sent).toEqual([]);
  await batch.send();
  await batch.send();
  expect(sent).toEqual([
    {
      text: `with w0 as (insert into a values ($1)), w1 as (update b set c = $2) ${CALL}`,
      values: [1, 2, ['changes'], ['x']],
    },
  ]);
});

test('a connection executes each statement at once', async () => {
  const { tx, sent } = recorder();
  await write(tx, (p) => `insert into a values (${p(1)}, ${p(2)})`);
  await notify(tx, 'changes', ['x', 'y']);
  expect(sent).toEqual([
    { text: 'insert into a values ($1, $2)', values: [1, 2] },
    {
      text: CALL.replace('$3', '$1').replace('$4', '$2'),
      values: [
        ['changes', 'changes'],
        ['x', 'y'],
      ],
    },
  ]);
});
