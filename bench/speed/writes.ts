import { sleep } from '../../src/lib/sleep.js';
import { labelsOf, requestOf } from './data-set.js';
import type { Generator, Request } from './generate.js';
import type { Server } from './processes.js';
import { measureOnce, middle, type Figures, type Pace } from './rounds.js';
import type { Store } from './store.js';

const MADE = 'made-';
/** The length of the warm-up, and its share of a turn when turns are short: a run in small has no figures to spoil. */
const WARM_UP_SECONDS = 5;
const WARM_UP_TURNS = 5;
/** The time limit for requested changes to take effect, in milliseconds. */
const SETTLE_MS = 120_000;

export interface Written {
  store: Store;
  servers: readonly Server[];
  /** The owners of the created sandboxes, in rotation when there are several. */
  orgs: readonly { id: string; key: string }[];
}

/** Each request has an idempotency key, which is recorded and counted. */
const headersOf = ({ key }: { key: string }) => ({
  authorization: `Bearer ${key}`,
  'idempotency-key': 'bench-{unique}',
});

/**
 * Creates sandboxes with a start. Once all run, it stops, starts, stops and deletes each one. Between these steps it
 * waits for the simulated runtime, which otherwise works beside the requests.
 */
export async function measureWrites(
  generator: Generator,
  written: Written,
  { rounds, seconds, connections }: Pace,
): Promise<Record<string, Figures>> {
  const { store, servers, orgs } = written;
  const figures = new Map<string, Figures[]>();
  const note = (name: string, measured: Figures) =>
    figures.set(name, [...(figures.get(name) ?? []), measured]);
  const arm = (requests: Request[]) => ({ servers, postmaster: store.postmaster, requests });
  const creates = orgs.map((org, index) => ({
    method: 'POST',
    path: '/v1/sandboxes?start=true',
    headers: { ...headersOf(org), 'content-type': 'application/json' },
    body: JSON.stringify(requestOf(`${MADE}{unique}`, labelsOf(index + 1, 100))),
  }));
  await removeMade(generator, written, connections);
  // Writes have no earlier warm-up, unlike reads: the code of the first thousands is not fully compiled.
  await measureOnce(generator, arm(creates), connections, warmUp(seconds));
  await removeMade(generator, written, connections);
  for (let round = 0; round < rounds; round += 1) {
    note('create and start', await measureOnce(generator, arm(creates), connections, seconds));
    for (const [name, verb] of [
      ['stop', '/stop'],
      ['start', '/start'],
      ['stop', '/stop'],
    ] as const) {
      const requests = (await settled(written)).map(({ id, org }) => ({
        method: 'POST',
        path: `/v1/sandboxes/${id}${verb}`,
        headers: headersOf(org),
      }));
      note(name, await measureOnce(generator, arm(requests), connections, SETTLE_MS / 1_000, true));
    }
    note('delete', await removeMade(generator, written, connections));
  }
  return Object.fromEntries([...figures].map(([name, all]) => [name, middle(all)]));
}

function warmUp(seconds: number): number {
  return Math.max(seconds, Math.min(WARM_UP_SECONDS, seconds * WARM_UP_TURNS));
}

async function removeMade(generator: Generator, written: Written, connections: number): Promise<Figures> {
  const { store, servers } = written;
  const requests = (await settled(written)).map(({ id, org }) => ({
    method: 'DELETE',
    path: `/v1/sandboxes/${id}`,
    headers: headersOf(org),
  }));
  const arm = { servers, postmaster: store.postmaster, requests };
  const figures = await measureOnce(generator, arm, connections, SETTLE_MS / 1_000, true);
  await settled(written);
  return figures;
}

/** The created sandboxes, once none is changing. */
async function settled({ store, orgs }: Written): Promise<{ id: string; org: Written['orgs'][number] }[]> {
  const deadline = Date.now() + SETTLE_MS;
  for (;;) {
    const { rows } = await store.pool.query<{ id: string; org_id: string; done: boolean; removed: boolean }>(
      `select id, org_id, removed_at is not null as removed,
         status not in ('starting', 'stopping') and (removed_at is null or destroyed_at is not null) as done
       from sandboxes where org_id = any ($1) and name like $2 and (removed_at is null or destroyed_at is null)`,
      [orgs.map(({ id }) => id), `${MADE}%`],
    );
    if (rows.every(({ done }) => done)) {
      const byId = new Map(orgs.map((org) => [org.id, org]));
      return rows.filter(({ removed }) => !removed).map(({ id, org_id }) => ({ id, org: byId.get(org_id)! }));
    }
    if (Date.now() > deadline) throw new Error(`not settled within ${SETTLE_MS / 1_000} s`);
    await sleep(50);
  }
}
