import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readBudget, readSeed } from '../support/budget.js';
import { openOwnDatabase, type OwnDatabase } from './support/database.js';
import { Victims } from './support/processes.js';
import { Dice } from './support/seeded-random.js';
import { World } from './support/scenario.js';

const BUDGET = readBudget({
  seconds: 'SANDKEEP_TEST_CRASH_SECONDS',
  count: 'SANDKEEP_TEST_CRASH_ROUNDS',
  defaultSeconds: 30,
  least: 3,
  roundMs: 15_000,
});
const SEED = readSeed('SANDKEEP_TEST_CRASH_SEED');
/** A round compares everything, so a long scenario makes its rounds slow. */
const ROUNDS_PER_WORLD = 25;

describe('after a random kill at a random time', () => {
  let server: OwnDatabase;
  let victims: Victims;
  beforeAll(async () => {
    victims = new Victims({ api: 1, worker: 2 });
    server = await openOwnDatabase();
  });
  afterAll(async () => {
    await victims.close();
    await server.close();
  });

  test(
    `the store equals the record of the engine: ${BUDGET.text}`,
    async () => {
      console.log(`crash-random: SANDKEEP_TEST_CRASH_SEED=${SEED}, ${BUDGET.text}`);
      let done = 0;
      for (let seed = SEED; BUDGET.left(done) > 0; seed += 1) done += await live(seed, done);
      console.log(`crash-random: ${done} rounds`);
      expect(done).toBeGreaterThanOrEqual(BUDGET.least);
    },
    BUDGET.timeoutMs,
  );

  /** Runs one scenario from start to end, after `done` rounds of others. Returns the number of its rounds. */
  async function live(seed: number, done: number): Promise<number> {
    const world = await World.make(new Dice(seed), victims, server, `crash_${process.pid}_${seed}`);
    let round = 0;
    try {
      while (round < ROUNDS_PER_WORLD && BUDGET.left(done + round) > 0) {
        round += 1;
        await world.round();
      }
      await world.end();
      return round;
    } catch (cause) {
      const again = `SANDKEEP_TEST_CRASH_SEED=${seed} SANDKEEP_TEST_CRASH_ROUNDS=${round}`;
      const { message } = cause as Error;
      const text = `${again}: ${message}\n\n${world.history()}\n\nagain: ${again} npx vitest run test/crash/random.test.ts`;
      throw new Error(text, { cause });
    } finally {
      await world.close();
    }
  }
});
