import { expect, test } from 'vitest';
import { stopCause } from '../../src/sandboxes/lifecycle/stop-reason.js';

const RUN = { stop_reason: null, command: null, max_duration_secs: 90, idle_timeout_secs: 60 } as const;

test.each([
  ['requested', 'requested', 'a caller stopped it'],
  ['idle_timeout', 'idle', 'it was idle for 60 seconds, its idle_timeout_secs'],
  [
    'max_duration_exceeded',
    'max_duration',
    'it ran for 90 seconds, its max_duration_secs or the limit of the organization',
  ],
  ['quota_exhausted', 'quota', 'the organization has used up its hours of the month'],
  ['budget_exhausted', 'budget', 'a budget of the organization that covers it is used up'],
  [
    'secret_violation',
    'secret_violation',
    'it sent the placeholder of a secret to a place that is not allowed',
  ],
  ['disk_full', 'disk_full', 'a disk was full up to its reserve, and this sandbox had grown most'],
  ['completed', 'engine', 'its process 1 got a signal to end, and no stop was requested'],
  ['crashed', 'engine', 'its process 1 was killed, and no stop was requested'],
  ['out_of_memory', 'oom', 'the sandbox ran out of memory'],
  ['start_failed', 'start_failed', 'the runtime refused to start it'],
  ['no_room_in_time', 'start_failed', 'no worker had room for it while its caller waited'],
  ['lost', 'lost', 'the runtime has no record of its end'],
  ['worker_removed', 'lost', 'the runtime has no record of its end'],
  ['evicted', 'engine', 'its engine ended it'],
  ['cancelled', 'requested', 'a caller stopped it'],
])('the end %s has the reason %s', (end, reason, message) => {
  expect(stopCause(RUN, end, null)).toEqual({ stop_reason: reason, stop_message: message });
});

test('a run that ends with its command ends for the command', () => {
  const run = { ...RUN, command: 'ends_run' } as const;
  expect(stopCause(run, 'completed', null)).toMatchObject({ stop_reason: 'command' });
  const message = 'the main process ended with code 3';
  expect(stopCause(run, 'crashed', message)).toEqual({ stop_reason: 'command', stop_message: message });
  expect(stopCause(run, 'out_of_memory', null).stop_reason).toBe('oom');
});

test('a stop that was requested explains an end without a record, and no end with one', () => {
  const run = { ...RUN, stop_reason: 'idle_timeout' };
  const idle = { stop_reason: 'idle', stop_message: 'it was idle for 60 seconds, its idle_timeout_secs' };
  expect(stopCause(run, 'lost', 'the runtime no longer holds it')).toEqual(idle);
  expect(stopCause(run, 'cancelled', null)).toEqual(idle);
  expect(stopCause(run, 'out_of_memory', 'the sandbox ran out of memory').stop_reason).toBe('oom');
  expect(stopCause({ ...RUN, stop_reason: 'restart' }, 'cancelled', null).stop_reason).toBe('requested');
});
