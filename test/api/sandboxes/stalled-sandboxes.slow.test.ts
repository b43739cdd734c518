import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { sleep } from '../../../src/lib/sleep.js';
import { SimulatedRuntime } from '../../../src/engines/simulated/runtime.js';
import { collectGarbage } from '../../support/held-memory.js';
import { startForTest, type TestOptions, type TestService } from '../../support/service.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { until, untilStatus } from '../../support/polling.js';

/** A stalled sandbox delays no other one. */

const running = { start: true, wait_for: 'running' };

async function start(make: (directory: string) => TestOptions): Promise<TestService> {
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-held-up-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  return startForTest(make(directory));
}

class Unreadable extends SimulatedRuntime {
  override async activity(): Promise<never> {
    return Promise.reject(new Error('it cannot be read what this one does'));
  }
}

test('a sandbox with unreadable activity does not delay the start of another', async () => {
  const service = await start((directory) => ({
    runtime: async () => Promise.resolve(new Unreadable(directory)),
  }));
  const [one, other] = [await service.newOrg(), await service.newOrg()];
  const lifecycle = { idle_timeout_secs: 60 };
  const watched = await one.post('/v1/sandboxes', smallRequest('watched', { lifecycle }), running);
  expect(watched.body.status).toBe('running');
  await sleep(1_200);
  expect((await other.post('/v1/sandboxes', smallRequest('other'), running)).body.status).toBe('running');
});

/** The stops of these sandboxes end only after `release`. */
class Reluctant extends SimulatedRuntime {
  readonly sandboxes = new Set<string>();
  release: () => void = () => undefined;
  private readonly released = new Promise<void>((resolve) => (this.release = resolve));

  override async stop(sandboxId: string): Promise<void> {
    if (this.sandboxes.has(sandboxId)) await this.released;
    return super.stop(sandboxId);
  }
}

test('a stop does not queue after a hundred stops that hang', async () => {
  const service = await start((directory) => ({
    runtime: async () => Promise.resolve(new Reluctant(directory)),
  }));
  const runtime = service.runtime as Reluctant;
  const [many, other] = [await service.newOrg(), await service.newOrg()];
  const made = await Promise.all(
    Array.from({ length: 100 }, async (_, index) => {
      const { body } = await many.post('/v1/sandboxes', smallRequest(`s-${index}`), { start: true });
      return body.id as string;
    }),
  );
  for (const id of made) {
    runtime.sandboxes.add(id);
    await untilStatus(many, id, 'running');
  }
  const { body } = await other.post('/v1/sandboxes', smallRequest('other'), running);
  await Promise.all(made.map((id) => many.post(`/v1/sandboxes/${id}/stop`, {})));
  await other.post(`/v1/sandboxes/${body.id}/stop`, {});
  try {
    await untilStatus(other, body.id, 'stopped');
    expect((await many.get(`/v1/sandboxes/${made[0]!}`)).body.status).toBe('stopping');
  } finally {
    runtime.release();
  }
});

test('a wait ends at its time-out also after a garbage collection', async () => {
  const service = await start(() => ({ worker: false }));
  const client = await service.newOrg();
  const waiting = client.post('/v1/sandboxes', smallRequest('waits'), { ...running, wait_timeout: 2 });
  for (let times = 0; times < 5; times += 1) {
    await sleep(200);
    collectGarbage();
  }
  expect((await waiting).body.status).toBe('starting');
});

/** Makes the database reject the start of any run of this organization with this SQLSTATE. */
async function refuseStarts({ ctx }: TestService, orgId: string, sqlState: string): Promise<void> {
  await ctx.pool.query(
    `create function refuse_start() returns trigger language plpgsql as $$ begin
       if new.started_at is not null and new.org_id = '${orgId}' then
         raise exception 'refused' using errcode = '${sqlState}';
       end if;
       return new;
     end $$;
     create trigger refuse_start before update on runs for each row execute function refuse_start()`,
  );
}

test('an observation that cannot be stored is retried once a second, and all others are stored', async () => {
  const service = await start(() => ({}));
  const [refused, other] = [await service.newOrg(), await service.newOrg()];
  await refuseStarts(service, refused.org.id, '23514');
  const failures = () => service.logs.filter((line) => line.includes('could not be reconciled')).length;
  const made = [];
  for (const client of [other, refused, other]) {
    made.push(await client.post('/v1/sandboxes', smallRequest(`s-${made.length}`), { start: true }));
  }
  await untilStatus(other, made[0]!.body.id, 'running');
  await untilStatus(other, made[2]!.body.id, 'running');
  await until(
    () => Promise.resolve(failures()),
    (count) => count > 0,
  );
  const before = failures();
  const began = performance.now();
  await sleep(5_000);
  const seconds = (performance.now() - began) / 1000;
  expect(failures() - before).toBeLessThan(seconds + 3);
  await service.ctx.pool.query('drop trigger refuse_start on runs');
  await untilStatus(refused, made[1]!.body.id, 'running');
});

test('while the database is away, observations are not retried one by one', async () => {
  const service = await start(() => ({}));
  const client = await service.newOrg();
  await refuseStarts(service, client.org.id, '57P03');
  const { body } = await client.post('/v1/sandboxes', smallRequest('s'), { start: true });
  await until(
    () => Promise.resolve(service.logs.some((line) => line.includes('a loop failed'))),
    (failed) => failed,
  );
  expect(service.logs.filter((line) => line.includes('could not be reconciled'))).toEqual([]);
  await service.ctx.pool.query('drop trigger refuse_start on runs');
  await untilStatus(client, body.id, 'running');
});
