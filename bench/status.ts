import { operator } from '../src/audit/events/actor.js';
import { readState } from '../src/cli/status-read.js';
import { connectAlone } from '../src/db/pool.js';
import { createOrg } from '../src/orgs/create.js';
import { loadSandboxes } from './speed/load-sandboxes.js';
import { median } from './median.js';
import { openStore } from './store.js';

/** Prints the time of the queries of "sandkeep status" beside so many sandboxes. */
export async function statusTimes(sandboxes: number, rounds: number): Promise<void> {
  const store = await openStore();
  try {
    const org = await createOrg(store.pool, { name: 'Bench', slug: 'bench' }, operator('bench'));
    const client = await connectAlone(store.address);
    await client.query('set statement_timeout = 0');
    await loadSandboxes(client, { id: org.id, slug: 'bench' }, sandboxes, Date.now(), () => undefined);
    await client.query('vacuum analyze');
    await client.end();
    const times: number[] = [];
    for (let round = 0; round < rounds; round += 1) {
      const began = performance.now();
      await readState(store.pool, 'embedded');
      times.push(performance.now() - began);
    }
    console.log(
      `${sandboxes} sandboxes: median ${median(times).toFixed(0)} ms, longest ${Math.max(...times).toFixed(0)} ms`,
    );
  } finally {
    await store.close();
  }
}
