import { afterAll, beforeAll, describe, test } from 'vitest';
import { openOwnDatabase, type OwnDatabase } from './support/database.js';
import { Victims } from './support/processes.js';
import { Dice } from './support/seeded-random.js';
import { World } from './support/scenario.js';

const ROUNDS = Number(process.env['SANDKEEP_CRASH_ROUNDS'] ?? 15);
const SEED = Number(process.env['SANDKEEP_CRASH_SEED'] ?? Date.now() % 1_000_000);
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
    `the store equals the record of the engine: ${ROUNDS} rounds`,
    async () => {
      console.log(`SANDKEEP_CRASH_SEED=${SEED} SANDKEEP_CRASH_ROUNDS=${ROUNDS}`);
      for (let done = 0, seed = SEED; done < ROUNDS; done += ROUNDS_PER_WORLD, seed += 1) {
        await live(seed, Math.min(ROUNDS - done, ROUNDS_PER_WORLD));
      }
    },
    240_000 + ROUNDS * 15_000,
  );

  /** Runs one scenario from start to end. */
  async function live(seed: number, rounds: number): Promise<void> {
    const world = await World.make(new Dice(seed), victims, server, `crash_${process.pid}_${seed}`);
    let round = 0;
    try {
      while (round < rounds) {
        round += 1;
        await world.round();
      }
      await world.end();
    } catch (cause) {
      const again = `SANDKEEP_CRASH_SEED=${seed} SANDKEEP_CRASH_ROUNDS=${rounds}`;
      const { message } = cause as Error;
      const text = `round ${round} of ${again}: ${message}\n\n${world.history()}\n\nagain: ${again} npx vitest run test/crash/random.test.ts`;
      throw new Error(text, { cause });
    } finally {
      await world.close();
    }
  }
});
