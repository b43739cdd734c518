import { afterAll, beforeAll, expect, test } from 'vitest';
import { SimulatedRuntime } from '../../../src/engines/simulated/runtime.js';
import { sleep } from '../../../src/lib/sleep.js';
import type { Client } from '../../support/client.js';
import { startWithLostCaptures } from '../../support/lost-captures.js';
import { until } from '../../support/polling.js';
import { startForTest, startTestService, type TestService } from '../../support/service.js';
import { ended, startSmall } from '../../support/snapshots.js';

const ROUNDS = 5;

let service: TestService;
let client: Client;
beforeAll(async () => {
  service = await startTestService({ settings: { stopGraceMs: 0, volumePurgeAfterMs: 0 } });
  client = await service.newOrg();
});
afterAll(() => service.close());

const ask = async (owner: Client, sandbox_id: string, name: string, part: object = {}) =>
  owner.post('/v1/snapshots', { kind: 'disk', sandbox_id, name, ...part });

/** Nothing of a failed operation is charged, and the engine has only what is ready. */
async function expectNothingLeft(on: TestService): Promise<void> {
  // A purge may end between the two reads.
  await until(
    async () => {
      const { rows } = await on.ctx.pool.query<{ id: string }>(
        `select id from snapshots where status in ('ready', 'deleting') and removed_at is null order by id`,
      );
      const held = (await on.runtime.snapshots!.list()).map(({ snapshotId }) => snapshotId);
      return { stored: rows.map(({ id }) => id), held: held.toSorted((a, b) => (a < b ? -1 : 1)) };
    },
    ({ stored, held }) => stored.join() === held.join(),
  );
  const charged = await on.ctx.pool.query(
    `select from accruals a join snapshots s on s.org_id = a.org_id and s.id = a.volume_id
     where s.status <> 'ready' and a.to_at > now()`,
  );
  expect(charged.rows).toEqual([]);
}

test('concurrent creates with one name make one snapshot', async () => {
  const id = await startSmall(client, 'named');
  for (let round = 0; round < ROUNDS; round += 1) {
    const answers = await Promise.all([1, 2, 3].map(() => ask(client, id, `name-${round}`)));
    expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([200, 409, 409]);
    const made = answers.find(({ status }) => status === 200)!;
    expect((await ended(client, made.body.id))['status']).toBe('succeeded');
  }
});

test('each replacement of a name leaves one snapshot', async () => {
  const id = await startSmall(client, 'replaced');
  for (let round = 0; round < ROUNDS; round += 1) {
    const answers = await Promise.all([1, 2].map(() => ask(client, id, 'replaced', { force: true })));
    const made = answers.filter(({ status }) => status === 200);
    expect(made.length).toBeGreaterThan(0);
    for (const { body } of made) expect((await ended(client, body.id))['status']).toBe('succeeded');
    const { body } = await client.get('/v1/snapshots/by-name/replaced');
    expect(made.map((answer) => answer.body.id)).toContain(body.id);
  }
});

test('a deletion beside a create, and a destroy beside a snapshot, leave an ended operation and nothing else', async () => {
  for (let round = 0; round < ROUNDS; round += 1) {
    const id = await startSmall(client, `ends-${round}`);
    const { body } = await ask(client, id, `ends-${round}`);
    const change =
      round % 2 === 0 ? client.delete(`/v1/snapshots/${body.id}`) : client.delete(`/v1/sandboxes/${id}`);
    const [answer, operation] = await Promise.all([change, ended(client, body.id)]);
    expect(answer.status).toBe(200);
    expect(['succeeded', 'failed']).toContain(operation['status']);
    if (operation['status'] === 'failed') {
      expect(['cancelled', 'sandbox_changed']).toContain(operation['error'].code);
    }
  }
  await expectNothingLeft(service);
});

test.each(['before', 'after'] as const)(
  'a worker that ends %s the engine has made a snapshot leaves the rest to its successor',
  async (moment) => {
    const { service: first, captured } = await startWithLostCaptures(moment);
    const owner = await first.newOrg();
    const id = await startSmall(owner, 'survives');
    const { body } = await ask(owner, id, 'survives');
    await captured();
    await first.stopWorker();
    const second = await startForTest({ beside: first, sameEngine: true, settings: { stopGraceMs: 0 } });
    expect(await ended(owner, body.id)).toMatchObject({ error: null, status: 'succeeded' });
    const { rows } = await second.ctx.pool.query('select from accruals where volume_id = $1', [body.id]);
    expect(rows.length).toBe(1);
    await expectNothingLeft(second);
  },
);

test('a successor captures nothing before it has taken over the engine', async () => {
  const first = await startForTest({ settings: { stopGraceMs: 0 } });
  const owner = await first.newOrg();
  const id = await startSmall(owner, 'taken-over');
  await first.stopWorker();
  const { body } = await ask(owner, id, 'taken-over');
  let hasTaken = false;
  const runtime = async () => {
    const slow = new SimulatedRuntime(first.directory, {
      onCapture: async () => {
        expect(hasTaken).toBe(true);
        return Promise.resolve();
      },
    });
    const takeOver = slow.takeOver.bind(slow);
    slow.takeOver = async (term) => {
      // A pass of the snapshots begins meanwhile.
      await sleep(1_500);
      await takeOver(term);
      hasTaken = true;
    };
    return Promise.resolve(slow);
  };
  await startForTest({ beside: first, sameEngine: true, runtime, settings: { stopGraceMs: 0 } });
  expect(await ended(owner, body.id)).toMatchObject({ status: 'succeeded', error: null });
});

test('a sandbox that is deleted when its capture begins is the reason, and not a missing disk', async () => {
  const owner = await service.newOrg();
  const id = await startSmall(owner, 'deleted');
  const snapshots = service.runtime.snapshots!;
  const capture = snapshots.capture.bind(snapshots);
  snapshots.capture = async (wanted, signal) => {
    snapshots.capture = capture;
    await owner.delete(`/v1/sandboxes/${id}`);
    await until(
      async () => (await service.runtime.list()).some((held) => held.sandboxId === id),
      (isHeld) => !isHeld,
    );
    return capture(wanted, signal);
  };
  const { body } = await ask(owner, id, 'deleted');
  expect((await ended(owner, body.id))['error'].code).toBe('sandbox_changed');
});
