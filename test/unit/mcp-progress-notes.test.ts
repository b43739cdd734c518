import type { Notification } from '@modelcontextprotocol/server';
import { expect, test } from 'vitest';
import { ProgressNotes } from '../../src/mcp/progress-notes.js';
import { until } from '../support/polling.js';

interface Sent {
  progress: number;
  message: string;
}

function notesFor(token: string | undefined, isBehind: () => boolean) {
  const sent: Sent[] = [];
  const notify = (notification: Notification) => {
    sent.push(notification.params as unknown as Sent);
    return Promise.resolve();
  };
  return { notes: new ProgressNotes(token, isBehind, notify), sent };
}

const untilSent = (sent: Sent[], count: number) =>
  until(
    () => Promise.resolve(sent.length),
    (length) => length >= count,
  );

test('texts are joined into notes with growing numbers, which have the newest characters', async () => {
  const { notes, sent } = notesFor('a', () => false);
  notes.add('x'.repeat(10_000));
  notes.add('end');
  await untilSent(sent, 1);
  notes.add('more');
  await untilSent(sent, 2);
  notes.add('never sent');
  notes.end();
  expect(sent.map(({ progress }) => progress)).toEqual([1, 2]);
  expect(sent[0]!.message).toBe(`${'x'.repeat(4_093)}end`);
  expect(sent[1]!.message).toBe('more');
});

test('a client that reads slowly, and one that asked for none, get no notes', async () => {
  let asked = 0;
  const slow = notesFor('a', () => {
    asked += 1;
    return true;
  });
  const silent = notesFor(undefined, () => false);
  for (const { notes } of [slow, silent]) notes.add('text');
  await until(
    () => Promise.resolve(asked),
    (count) => count > 0,
  );
  expect([slow.sent, silent.sent]).toEqual([[], []]);
  for (const { notes } of [slow, silent]) notes.end();
});
