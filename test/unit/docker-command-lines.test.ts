import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { afterEach, describe, expect, test } from 'vitest';
import { CommandLines } from '../../src/engines/docker/command-lines.js';
import { INIT_PROGRAM } from '../../src/guest/programs.js';
import { EMPTY_RECORD } from '../../src/guest/record-option.js';
import { until } from '../support/polling.js';

/** A text of the control groups of the processes below, as the id of a container is. */
const CONTAINER = readFileSync('/proc/self/cgroup', 'latin1').trim().split('\n')[0]!;
const lines = new CommandLines();
const begun: ChildProcess[] = [];
afterEach(() => {
  lines.close();
  for (const child of begun.splice(0)) child.kill('SIGKILL');
});

async function processOne(): Promise<ChildProcess & { pid: number }> {
  const child = spawn('/bin/sh', ['-c', 'read -r end', EMPTY_RECORD, '--'], {
    argv0: INIT_PROGRAM,
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  begun.push(child);
  await once(child, 'spawn');
  return child as ChildProcess & { pid: number };
}

function openFilesOf(pid: number): number {
  return readdirSync('/proc/self/fd').filter((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`) === `/proc/${pid}/cmdline`;
    } catch {
      // The one that listed the folder.
      return false;
    }
  }).length;
}

const untilClosed = (pid: number) =>
  until(
    async () => Promise.resolve(openFilesOf(pid)),
    (open) => open === 0,
  );

describe('records of process 1 in /proc', () => {
  test('need one open file for each container', async () => {
    const { pid } = await processOne();
    const states = await Promise.all([lines.read(CONTAINER, pid), lines.read(CONTAINER, pid)]);
    expect([...states, await lines.read(CONTAINER, pid)]).toEqual(['running', 'running', 'running']);
    expect(openFilesOf(pid)).toBe(1);
  });

  test('leave no open file of a container that is gone', async () => {
    const { pid } = await processOne();
    await lines.read(CONTAINER, pid);
    lines.keepOnly(new Set([CONTAINER]));
    expect(await lines.read(CONTAINER, pid)).toBe('running');
    lines.keepOnly(new Set());
    await untilClosed(pid);
  });

  test('are of the present process of a container', async () => {
    const [before, after] = [await processOne(), await processOne()];
    await lines.read(CONTAINER, before.pid);
    expect(await lines.read(CONTAINER, after.pid)).toBe('running');
    expect(openFilesOf(after.pid)).toBe(1);
    await untilClosed(before.pid);
  });

  test('end with their process', async () => {
    const child = await processOne();
    await lines.read(CONTAINER, child.pid);
    const gone = once(child, 'exit');
    child.stdin!.end();
    await gone;
    expect(await lines.read(CONTAINER, child.pid)).toBeUndefined();
    await untilClosed(child.pid);
  });

  test('are not read of a process of another container', async () => {
    const { pid } = await processOne();
    expect(await lines.read('0'.repeat(64), pid)).toBeUndefined();
    await untilClosed(pid);
  });
});
