import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { FULL_ACCESS } from '../src/access/access.js';
import type { Caller } from '../src/access/caller.js';
import { ActiveEventKeys } from '../src/audit/events/active-keys.js';
import { operator } from '../src/audit/events/actor.js';
import { startSealing } from '../src/audit/log/seal-loop.js';
import { SeenHeads } from '../src/audit/log/seen-heads.js';
import { openEventKeys } from '../src/audit/log/signing-key.js';
import { verifyStore } from '../src/audit/verify/verify-store.js';
import { table } from '../src/cli/table.js';
import { type WorkerContext } from '../src/context.js';
import { listenForChanges } from '../src/db/changes.js';
import { makeLog } from '../src/lib/log.js';
import { sleep } from '../src/lib/sleep.js';
import { createOrg } from '../src/orgs/create.js';
import { SimulatedRuntime } from '../src/engines/simulated/runtime.js';
import { createSandbox } from '../src/sandboxes/lifecycle/create.js';
import { Keyring } from '../src/secrets/keyring.js';
import { UNCHECKED_DISKS } from '../src/disk/disk-reserve.js';
import { VolumeStore } from '../src/volumes/storage/store.js';
import { median } from './median.js';
import { openStore } from './store.js';
import { makeContext } from '../src/service/make-context.js';

/** The same creates with different ways to keep events. */
const ARMS = ['no log', 'as it is', 'linked at once'] as const;
type Arm = (typeof ARMS)[number];

/**
 * The obvious way: a writer locks the end of its organization's chain until its commit, so that the next writer waits.
 */
const LINK_AT_ONCE = `
  create function link_at_once() returns trigger language plpgsql as $$
  begin
    insert into event_chains (org_id) values (new.org_id) on conflict do nothing;
    perform from event_chains where org_id = new.org_id for update;
    insert into bench_links (org_id, event_id, link)
    select new.org_id, new.id, sha256(coalesce(
      (select link from bench_links where org_id = new.org_id order by seq desc limit 1), '') || new.leaf);
    return null;
  end
  $$;
  create table bench_links (seq bigserial primary key, org_id uuid, event_id uuid, link bytea);
  create trigger link_at_once after insert on events for each row execute function link_at_once();
  alter table events disable trigger link_at_once`;

/** Prints the cost of the log for concurrent writers of one organization, in turns with and without it. */
export async function events(writers: number, creates: number, rounds: number): Promise<void> {
  const store = await openStore();
  const { pool, directory } = store;
  await pool.query(LINK_AT_ONCE);
  const key = createHash('sha256').update('bench').digest('base64');
  const eventKeys = openEventKeys({ keys: key });
  const activeKeys = new ActiveEventKeys(eventKeys);
  pool.eventMarker = activeKeys.marker;
  const runtime = new SimulatedRuntime(directory);
  const ctx = makeContext<WorkerContext>(Buffer.alloc(32), {
    pool,
    runtime,
    volumes: new VolumeStore(directory),
    disk: UNCHECKED_DISKS,
    eventKeys,
    activeKeys,
    seenHeads: new SeenHeads(join(directory, 'event-heads')),
    keyring: () => Keyring.parse(key, 'the bench'),
    changes: listenForChanges(store.address, () => undefined),
    log: makeLog('silent', { write: () => undefined }),
    stopping: new AbortController().signal,
  });
  const times = new Map<Arm, { rate: number; slow: number }[]>(ARMS.map((arm) => [arm, []]));
  let behind = 0;
  // The first round only warms up.
  for (let round = 0; round <= rounds; round += 1) {
    for (const arm of ARMS) {
      await pool.query(
        `alter table events ${arm === 'as it is' ? 'enable' : 'disable'} trigger queue_events;
         alter table events ${arm === 'linked at once' ? 'enable' : 'disable'} trigger link_at_once`,
      );
      const org = await createOrg(
        pool,
        { name: 'Bench', slug: `b${round}-${ARMS.indexOf(arm)}` },
        operator('bench'),
      );
      const actor = operator('bench');
      const caller: Caller = { orgId: org.id, actor, access: FULL_ACCESS };
      const sealing = arm === 'as it is' ? startSealing(ctx, console.error) : undefined;
      const result = await load(ctx, caller, writers, creates);
      if (round > 0) times.get(arm)!.push(result);
      if (!sealing) continue;
      const ended = performance.now();
      await untilSealed(ctx, org.id);
      behind = Math.max(behind, performance.now() - ended);
      await sealing.stop();
      const { wrong } = await verifyStore(pool, org.id, { keys: eventKeys().known });
      if (wrong !== null) throw new Error(wrong);
    }
  }
  console.log(
    `Node ${process.versions.node}, ${rounds} rounds in turns, medians; ${writers} writers at once into one organization, ${creates} sandboxes made with a start (two events each)\n`,
  );
  const base = median(times.get('no log')!.map(({ rate }) => rate));
  const rows = ARMS.map((arm) => {
    const rate = median(times.get(arm)!.map((one) => one.rate));
    const slow = median(times.get(arm)!.map((one) => one.slow));
    return [arm, rate.toFixed(0), (rate / base).toFixed(2), slow.toFixed(1)];
  });
  console.log(table(['EVENTS ARE', 'CREATES/s', 'OF NO LOG', 'p99 ms'], rows));
  console.log(`\nthe log was complete at most ${behind.toFixed(0)} ms after the last create`);
  await ctx.changes.close();
  await store.close();
}

async function load(
  ctx: WorkerContext,
  caller: Caller,
  writers: number,
  creates: number,
): Promise<{ rate: number; slow: number }> {
  const took: number[] = [];
  let next = 0;
  const begun = performance.now();
  await Promise.all(
    Array.from({ length: writers }, async () => {
      while (next < creates) {
        const name = `sandbox-${(next += 1)}`;
        const asked = performance.now();
        await createSandbox(
          ctx,
          caller,
          { name, image: { type: 'oci', reference: 'busybox' } },
          { start: true },
        );
        took.push(performance.now() - asked);
      }
    }),
  );
  const rate = (took.length / (performance.now() - begun)) * 1_000;
  return { rate, slow: took.toSorted((a, b) => a - b)[Math.floor(took.length * 0.99)]! };
}

async function untilSealed({ pool }: WorkerContext, orgId: string): Promise<void> {
  for (;;) {
    const { rowCount } = await pool.query('select from unsealed_events where org_id = $1 limit 1', [orgId]);
    if (rowCount === 0) return;
    await sleep(5);
  }
}
