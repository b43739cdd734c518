import {
  appendFileSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { v7 as uuidv7 } from 'uuid';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Run } from '../../src/engine/runtime.js';
import { SimulatedRuntime } from '../../src/engines/simulated/runtime.js';
import { recordOf } from '../crash/support/engine-journal.js';

const never = new AbortController().signal;
let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'sandkeep-simulated-'));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

const HELD = { valid: true };

/** A process attached to the engine. */
const attach = () => new SimulatedRuntime(directory);

function aRun(): Run {
  const ids = { orgId: uuidv7(), sandboxId: uuidv7(), runId: uuidv7(), name: 'journal' };
  return { ...ids, spec: {} as Run['spec'], secrets: {} as Run['secrets'] };
}

async function heldBy(runtime: SimulatedRuntime): Promise<string[]> {
  return (await runtime.list()).map(({ runId, state }) => `${runId} ${state}`);
}

test('concurrent takeovers of the engine leave one owner, and the others write nothing', async () => {
  const first = attach();
  await first.takeOver(HELD);
  const before = aRun();
  await first.start(before, never);

  for (let round = 0; round < 20; round += 1) {
    const rivals = Array.from({ length: 4 }, attach);
    const outcomes = await Promise.allSettled(rivals.map((rival) => rival.takeOver(HELD)));
    const winners = rivals.filter((_, index) => outcomes[index]!.status === 'fulfilled');
    // There are several winners only when one finished before another began.
    expect(winners.length).toBeGreaterThanOrEqual(1);
    for (const [index, rival] of rivals.entries()) {
      const outcome = outcomes[index]!;
      if (outcome.status === 'fulfilled') continue;
      expect(outcome.reason).toHaveProperty(
        'message',
        'another process takes over the simulated engine at this moment',
      );
      await expect(rival.start(aRun(), never)).rejects.toThrow(
        'another process acts on the simulated engine',
      );
    }
    const started = winners.map(() => aRun());
    for (const [index, winner] of winners.entries()) await winner.start(started[index]!, never);
    const next = attach();
    await next.takeOver(HELD);
    const held = await heldBy(next);
    expect(held).toContain(`${before.runId} running`);
    expect(started.filter(({ runId }) => held.includes(`${runId} running`))).toHaveLength(1);
    expect(held).toHaveLength(round + 2);
    for (const rival of [...rivals, next]) await rival.close();
  }
  await first.close();
  expect(readdirSync(directory).filter((name) => name !== 'engine-id')).toHaveLength(1);
});

test('a process delayed beyond its term does not take the engine from its successor', async () => {
  const successor = attach();
  let term: { readonly valid: boolean } = HELD;
  const late = attach();
  const taking = late.takeOver({
    get valid() {
      return term.valid;
    },
  });
  const refused = expect(taking).rejects.toThrow('the lease on the simulated engine has ended');
  term = { valid: false };
  await successor.takeOver(HELD);
  await refused;
  const run = aRun();
  await successor.start(run, never);
  const next = attach();
  await next.takeOver(HELD);
  expect(await heldBy(next)).toEqual([`${run.runId} running`]);
  for (const one of [late, successor, next]) await one.close();
});

test('a run that ends by itself during a takeover, or after a failed one, causes no error', async () => {
  const runtime = attach();
  await runtime.takeOver(HELD);
  const run = aRun();
  await runtime.start(run, never);
  const taking = runtime.takeOver(HELD);
  runtime.exit(run.sandboxId, 0);
  await taking;
  expect(await heldBy(runtime)).toEqual([`${run.runId} running`]);
  await expect(runtime.takeOver({ valid: false })).rejects.toThrow('has ended');
  runtime.exit(run.sandboxId, 0);
  await runtime.takeOver(HELD);
  expect(await heldBy(runtime)).toEqual([`${run.runId} running`]);
  await runtime.close();
});

test('a process that resumes after two successors finds its file outdated', async () => {
  const [late, second, third] = [attach(), attach(), attach()];
  const first = attach();
  await first.takeOver(HELD);
  const run = aRun();
  await first.start(run, never);
  // The process saw the first file, and creates the second when a third exists and the second is gone.
  for (const one of [second, third]) await one.takeOver(HELD);
  const record = recordOf(directory)!;
  const held = join(directory, 'held-up');
  renameSync(record, held);
  writeFileSync(join(directory, 'simulated.1.ndjson'), '');
  const taking = late.takeOver({
    get valid() {
      renameSync(held, record);
      return true;
    },
  });
  await expect(taking).rejects.toThrow('another process takes over');
  const last = attach();
  await last.takeOver(HELD);
  expect(await heldBy(last)).toEqual([`${run.runId} running`]);
  for (const one of [first, late, second, third, last]) await one.close();
});

test('late writes of a predecessor are in no valid record', async () => {
  const old = attach();
  await old.takeOver(HELD);
  const run = aRun();
  await old.start(run, never);
  const successor = attach();
  await successor.takeOver(HELD);
  old.exit(run.sandboxId, 0);
  await old.start(aRun(), never);
  const third = attach();
  await third.takeOver(HELD);
  expect(await heldBy(third)).toEqual([`${run.runId} running`]);
  for (const one of [old, successor, third]) await one.close();
});

test('a record without a number, or with a truncated last line, is readable', async () => {
  const old = attach();
  await old.takeOver(HELD);
  const [kept, torn] = [aRun(), aRun()];
  await old.start(kept, never);
  await old.close();
  const text = readFileSync(recordOf(directory)!, 'utf8');
  appendFileSync(
    recordOf(directory)!,
    text.replaceAll(kept.sandboxId, torn.sandboxId).trimEnd().slice(0, -1),
  );
  renameSync(recordOf(directory)!, join(directory, 'simulated.ndjson'));

  const next = attach();
  await next.takeOver(HELD);
  await next.start(torn, never);
  await next.close();
  const last = attach();
  await last.takeOver(HELD);
  expect((await heldBy(last)).toSorted()).toEqual(
    [`${kept.runId} running`, `${torn.runId} running`].toSorted(),
  );
  await last.close();
});
