import { Buffer } from 'node:buffer';
import { expect, test } from 'vitest';
import { readCommandLine } from '../../src/guest/command-end.js';
import { INIT_PROGRAM, initArguments } from '../../src/guest/programs.js';
import {
  commandAfterLook,
  commandAfterRun,
  RUNNING_COMMAND,
} from '../../src/sandboxes/reconcile/command-state.js';

const bytes = (...words: string[]) => Buffer.from(words.map((word) => `${word}\0`).join(''));
const record = (text: string) => bytes(INIT_PROGRAM, `--record=${text.padEnd(32, '-')}`, '--', 'sh');
const MICROS = 1_790_000_000_000_001n;

test('the record of process 1 tells the end of the command', () => {
  const started = initArguments({ command: ['sh'], untilExit: false, stopSignal: 15 });
  expect(readCommandLine(bytes(INIT_PROGRAM, ...started))).toBe('running');
  expect(readCommandLine(record(`137 9 1 ${MICROS}.`))).toEqual({
    exitCode: 137,
    signal: 9,
    outOfMemory: true,
    endedAt: '2026-09-21T14:13:20.000001Z',
  });
  expect(readCommandLine(record(`3 0 2 ${MICROS}.`))).toMatchObject({ signal: null, outOfMemory: null });
  // The first character is the last one that is written.
  expect(readCommandLine(record(`-37 9 1 ${MICROS}.`))).toBe('running');
});

test('a command line that is no such record ends no command', () => {
  expect(readCommandLine(bytes('sh', `--record=3 0 0 ${MICROS}.-----`))).toBeUndefined();
  expect(readCommandLine(Buffer.alloc(0))).toBeUndefined();
  // The release before had no record.
  expect(readCommandLine(bytes(INIT_PROGRAM, '--stop-signal=15', '--', 'sh'))).toBe('unknown');
  for (const text of [
    `999 0 0 ${MICROS}.`,
    `3 0 7 ${MICROS}.`,
    `3 0 0 ${'9'.repeat(18)}.`,
    'x',
    `3 0 0 ${MICROS}. 1`,
  ])
    expect(readCommandLine(record(text)), text).toBe('unknown');
  const command = bytes(INIT_PROGRAM, '--stop-signal=15', '--', 'sh', `--record=3 0 0 ${MICROS}.-----`);
  expect(readCommandLine(command)).toBe('unknown');
  const far = bytes(INIT_PROGRAM, 'x'.repeat(5_000), `--record=3 0 0 ${MICROS}.-----`);
  expect(readCommandLine(far)).toBe('unknown');
});

test('an end is never before the start of its run, and the end of a run ends its command', () => {
  const end = { exitCode: 3, signal: null, outOfMemory: false, endedAt: '2026-01-01T00:00:00.000000Z' };
  expect(commandAfterLook(end, '2026-01-01T00:00:05.000000Z')).toMatchObject({
    status: 'exited',
    exit_code: 3,
    ended_at: '2026-01-01T00:00:05Z',
  });
  const exit = { code: 3, outOfMemory: false };
  const ending = { exit, wasAsked: false, stoppedAt: '2026-01-01T00:00:09.000000Z' };
  const stopped = commandAfterRun(RUNNING_COMMAND, { command: 'stays' }, ending);
  expect(stopped).toMatchObject({ status: 'stopped', exit_code: null, ended_at: '2026-01-01T00:00:09Z' });
  expect(commandAfterRun(stopped, { command: 'stays' }, ending)).toBe(stopped);
  const exited = commandAfterRun(RUNNING_COMMAND, { command: 'ends_run' }, ending);
  expect(exited).toMatchObject({ status: 'exited', exit_code: 3, oom_killed: false });
  const asked = commandAfterRun(RUNNING_COMMAND, { command: 'ends_run' }, { ...ending, wasAsked: true });
  expect(asked).toMatchObject({ status: 'stopped', exit_code: 3 });
  expect(commandAfterRun(null, { command: null }, ending)).toBeNull();
});
