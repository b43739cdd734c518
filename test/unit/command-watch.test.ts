import { Buffer } from 'node:buffer';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { Context } from '../../src/context.js';
import type { Guest } from '../../src/guest/guest.js';
import { INIT_PROGRAM } from '../../src/guest/programs.js';
import { CommandWatch, type FoundCommand } from '../../src/sandboxes/reconcile/command-watch.js';
import type { Timed } from '../../src/sandboxes/reconcile/scope.js';

const ENDED = Buffer.from(`${INIT_PROGRAM}\0--record=3 0 0 1790000000000001.--------\0--\0sh\0`);

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

function running(sandboxId: string, orgId: string): Timed {
  const wanted = { status: 'running', removed: false, runId: `run of ${sandboxId}` };
  const row = { orgId, sandboxId, commandRuns: true, wanted };
  return { row, held: { state: 'running', runId: wanted.runId } } as unknown as Timed;
}

/** A runtime without a way from outside. `hangs`: the guests that never answer. */
function watchOf(hangs: (sandboxId: string) => boolean) {
  const asked: string[] = [];
  const found: string[] = [];
  const guest = { files: () => ({ open: async () => 1, read: async () => ENDED, end: () => undefined }) };
  const openGuest = async (sandboxId: string) => {
    asked.push(sandboxId);
    if (hangs(sandboxId)) await new Promise(() => undefined);
    return { guest: guest as unknown as Guest, release: () => undefined };
  };
  const log = { debug: () => undefined, error: () => undefined };
  const ctx = { runtime: { openGuest }, log } as unknown as Context;
  const write = async (all: readonly FoundCommand[]) => {
    found.push(...all.map(({ row }) => row.sandboxId));
  };
  return { watch: new CommandWatch(ctx, write), asked, found };
}

async function passes(watch: CommandWatch, sandboxes: readonly Timed[], seconds: number): Promise<void> {
  for (let second = 0; second < seconds; second += 1) {
    watch.begin(sandboxes);
    await vi.advanceTimersByTimeAsync(1_000);
  }
}

test('a guest that never answers is asked ever more rarely, and at most once a minute', async () => {
  const { watch, asked, found } = watchOf(() => true);
  await passes(watch, [running('hangs', 'a')], 600);
  expect(asked.length).toBeGreaterThan(8);
  expect(asked.length).toBeLessThan(20);
  expect(found).toEqual([]);
  await watch.close();
});

test('guests of one organization that never answer do not hold up those of another', async () => {
  const { watch, found } = watchOf((id) => id.startsWith('hangs'));
  const hanging = Array.from({ length: 100 }, (_, index) => running(`hangs ${index}`, 'bad'));
  await passes(watch, hanging, 4);
  await passes(watch, [...hanging, running('ended', 'good')], 5);
  expect(found).toContain('ended');
  await watch.close();
});

test('a look that hangs does not hold up a stop', async () => {
  const { watch } = watchOf(() => true);
  let isOver = false;
  void watch.beforeStop(running('hangs', 'a').row).then(() => (isOver = true));
  await vi.advanceTimersByTimeAsync(5_001);
  expect(isOver).toBe(true);
  await watch.close();
});
