import { beforeEach, expect, test } from 'vitest';
import { MINUTE } from '../../../src/engine/network-record/minute.js';
import { PENDING, PendingRecord, type Due } from '../../../src/engine/network-record/pending-record.js';
import { refusalOf } from '../../../src/engine/network-record/refusal.js';
import type { Denial, Flow } from '../../../src/gateway/protocol.js';

const flow = (more: Partial<Flow> = {}): Flow => ({
  sandbox: 'a',
  name: 'api.example.com',
  address: '192.0.2.1',
  port: 443,
  protocol: 'tcp',
  rule: 0,
  connections: 1,
  sentBytes: 10,
  receivedBytes: 100,
  firstAt: 1_000,
  lastAt: 2_000,
  secrets: [],
  ...more,
});
const refused = (more: Partial<Denial> = {}) =>
  refusalOf({ sandbox: 'a', at: 1_000, kind: 'name', protocol: 'dns', name: 'x', reason: 'denied', ...more });
const write = (due: readonly Due[]) => {
  for (const each of due) each.written();
  return due.map(({ content }) => content);
};

let record: PendingRecord;
beforeEach(() => {
  record = new PendingRecord();
  record.turn(0);
});

test('destinations are due at the end of their minute, added up', () => {
  record.addFlow(flow({ secrets: ['KEY'] }));
  record.addFlow(flow({ firstAt: 500, lastAt: 4_000, secrets: ['KEY', 'OTHER'] }));
  record.addFlow(flow({ port: 80, connections: 2 }));
  expect(record.due()).toEqual([]);
  record.turn(60_000);
  expect(write(record.due())).toEqual([
    {
      destination: expect.objectContaining({
        name: 'api.example.com',
        port: 443,
        connections: 2,
        sentBytes: 20,
        receivedBytes: 200,
        firstAt: 500,
        lastAt: 4_000,
        secrets: ['KEY', 'OTHER'],
      }),
    },
    { destination: expect.objectContaining({ port: 80, connections: 2 }) },
  ]);
  expect([record.due(), record.dueLeftOut()]).toEqual([[], []]);
});

test('a refusal is due at once, and further ones together at the end of the minute', () => {
  record.addRefusal('a', refused());
  const due = record.due();
  // It comes while the first one is written.
  record.addRefusal('a', refused({ at: 1_500 }));
  expect(write(due)).toEqual([{ refusal: expect.objectContaining({ count: 1 }) }]);
  record.addRefusal('a', refused({ at: 2_000, count: 5 }));
  expect(record.due()).toEqual([]);
  record.turn(60_000);
  expect(write(record.due())).toEqual([
    { refusal: expect.objectContaining({ count: 6, firstAt: 1_000, lastAt: 2_000 }) },
  ]);
  expect([record.due(), record.dueLeftOut()]).toEqual([[], []]);
});

test('a write that fails is due again', () => {
  record.addRefusal('a', refused());
  record.addFlow(flow());
  record.turn(60_000);
  record.due();
  expect(record.dueLeftOut()).toEqual([]);
  expect(write(record.due())).toHaveLength(2);
});

test('the counts of a minute have everything that is left out, and violations of secrets have room of their own', () => {
  for (let index = 0; index < MINUTE.destinations + 3; index += 1) record.addFlow(flow({ port: index + 1 }));
  record.addFlow(flow({ address: '*', port: 0, connections: 7 }));
  for (let index = 0; index < MINUTE.refusals + 2; index += 1) {
    record.addRefusal('a', refused({ name: `${index}`, count: 2 }));
  }
  record.addRefusal('a', refused({ kind: 'secret', secret: 'KEY' }));
  record.turn(60_000);
  const due = record.due();
  expect(due).toHaveLength(MINUTE.destinations + MINUTE.refusals + 1);
  due.pop()!.leaveOut();
  write(due.slice(0, -1));
  due.at(-1)!.written();
  expect(write(record.dueLeftOut())).toEqual([
    { leftOut: { connections: 11, sentBytes: 50, receivedBytes: 500, refusals: 4 } },
  ]);
  expect(record.dueLeftOut()).toEqual([]);
});

test('one sandbox takes no room of the others, and a long outage of the database drops the oldest minutes', () => {
  for (let sandbox = 0; sandbox * MINUTE.refusals < PENDING.most + 500; sandbox += 1) {
    for (let index = 0; index < MINUTE.refusals; index += 1) {
      record.addRefusal(`${sandbox}`, refused({ name: `${index}` }));
    }
  }
  expect(record.due()).toHaveLength(PENDING.most + 50);
  record.addRefusal('late', refused());
  expect(record.due()).toHaveLength(PENDING.most + 51);
  for (let minute = 1; minute <= PENDING.minutes + 1; minute += 1) {
    record.turn(minute * 60_000);
    record.addRefusal('late', refused({ name: `minute ${minute}` }));
  }
  expect(record.lost).toBe(PENDING.most + 51);
  expect(record.due().map(({ content }) => 'refusal' in content && content.refusal.name)).toEqual(
    Array.from({ length: PENDING.minutes + 1 }, (_, index) => `minute ${index + 1}`),
  );
});
