import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readBudget, readSeed } from '../support/budget.js';
import { whyNoServers } from '../support/postgres-server.js';
import type { OwnDatabase } from './support/database.js';
import { Victims } from './support/processes.js';
import { openReplicatedDatabase } from './support/replicated.js';
import { World } from './support/scenario.js';
import { Dice } from './support/seeded-random.js';

const reason = whyNoServers();
if (reason !== undefined) console.warn(`the test of failovers is SKIPPED: ${reason}`);

const BUDGET = readBudget({
  seconds: 'SANDKEEP_TEST_CRASH_FAILOVER_SECONDS',
  count: 'SANDKEEP_TEST_CRASH_FAILOVER_ROUNDS',
  defaultSeconds: 15,
  least: 3,
  roundMs: 40_000,
});
const SEED = readSeed('SANDKEEP_TEST_CRASH_SEED');

describe.skipIf(reason !== undefined)(
  `a primary killed with SIGKILL under load${reason ? ` — SKIPPED: ${reason}` : ''}`,
  () => {
    let server: OwnDatabase;
    let victims: Victims;
    beforeAll(async () => {
      victims = new Victims({ api: 1, worker: 2 });
      server = await openReplicatedDatabase();
    });
    afterAll(async () => {
      await victims.close();
      await server.close();
    });

    test(
      `costs no acknowledged write and no restart of the service, which the promoted standby serves within 10 s: ${BUDGET.text}`,
      async () => {
        console.log(`crash-failover: SANDKEEP_TEST_CRASH_SEED=${SEED}, ${BUDGET.text}`);
        const world = await World.make(new Dice(SEED), victims, server, `crash_${process.pid}`);
        let round = 0;
        try {
          while (BUDGET.left(round) > 0) {
            round += 1;
            await world.round();
          }
          await world.end();
        } catch (cause) {
          const again = `SANDKEEP_TEST_CRASH_SEED=${SEED} SANDKEEP_TEST_CRASH_FAILOVER_ROUNDS=${round}`;
          const { message } = cause as Error;
          throw new Error(
            `${again}: ${message}\n\n${world.history()}\n\nagain: ${again} npx vitest run test/crash/failover.test.ts`,
            { cause },
          );
        } finally {
          await world.close();
        }
        console.log(`crash-failover: ${round} rounds`);
        expect(round).toBeGreaterThanOrEqual(BUDGET.least);
      },
      BUDGET.timeoutMs,
    );
  },
);
