import { makeClient, type Client } from '../../support/client.js';
import { micros, type Journal } from './engine-journal.js';
import type { Store, StoredSandbox } from './store-snapshot.js';
import type { Asker } from './workload.js';

/** Compares the answers of the API (lists, quotas, usage) with the record of the engine. Returns the faults. */
export async function checkShown(
  url: string,
  { org, key, keyId }: Asker,
  journal: Journal,
  store: Store,
): Promise<string[]> {
  const client = makeClient(url, { org, key, keyId });
  const rows = [...store.sandboxes.values()].filter(({ org_id, removed }) => org_id === org.id && !removed);
  return [
    ...(await checkList(
      client,
      rows.filter(({ warm }) => !warm),
    )),
    ...(await checkQuotas(client, rows)),
    ...(await checkBill(client, journal, store)),
  ];
}

async function checkList(client: Client, rows: readonly StoredSandbox[]): Promise<string[]> {
  const shown: string[] = [];
  for (let cursor: string | null | undefined; cursor !== null;) {
    const { body } = await client.get('/v1/sandboxes', { limit: 100, ...(cursor ? { cursor } : {}) });
    shown.push(...body.data.map((one: { id: string; status: string }) => `${one.id} ${one.status}`));
    cursor = body.next_cursor;
  }
  const expected = rows.map(({ id, status }) => `${id} ${status}`);
  const [a, b] = [shown, expected].map((list) => list.toSorted().join('\n'));
  return a === b ? [] : [`the list of ${client.org.name} shows\n${a}\nand not\n${b}`];
}

async function checkQuotas(client: Client, rows: readonly StoredSandbox[]): Promise<string[]> {
  const { body } = await client.get('/v1/quotas');
  const running = (ephemeral: boolean) =>
    rows.filter((row) => row.ephemeral === ephemeral && ['starting', 'running'].includes(row.status)).length;
  const counts = [
    ['total_sandboxes', 'max_sandboxes', rows.length],
    ['concurrent_persistent_running', 'max_concurrent_persistent_running', running(false)],
    ['concurrent_ephemeral_running', 'max_concurrent_ephemeral_running', running(true)],
  ] as const;
  return counts.flatMap(([used, limit, count]) =>
    body[used] === count && (body[limit] === null || count <= body[limit])
      ? []
      : [`${client.org.name} has ${count}; ${used} shows ${body[used]} of ${body[limit]}`],
  );
}

/** The range ends in the past, so open runs do not change the sum. */
async function checkBill(client: Client, journal: Journal, { runs }: Store): Promise<string[]> {
  const until = new Date(Date.now() - 5);
  const since = new Date(until.getTime() - 24 * 3_600_000);
  const { body } = await client.get('/v1/billing/usage/sandbox', {
    since: since.toISOString(),
    until: until.toISOString(),
  });
  const billed = new Map<string, number[]>();
  for (const row of body.rows) {
    const [vcpu = 0, memory = 0] = billed.get(row.sandbox_id) ?? [];
    billed.set(row.sandbox_id, [vcpu + row.vcpu_seconds, memory + row.mem_mib_seconds]);
  }
  const end = micros(until.toISOString());
  const sizes = new Map(runs.map((run) => [run.id, run]));
  const used = new Map<string, bigint[]>();
  for (const run of journal.runs.values()) {
    const size = sizes.get(run.runId);
    if (run.orgId !== client.org.id || !size) continue;
    const stop = run.stoppedAt === null || run.stoppedAt > end ? end : run.stoppedAt;
    if (stop <= run.startedAt) continue;
    const [vcpu = 0n, memory = 0n] = used.get(run.sandboxId) ?? [];
    const ran = stop - run.startedAt;
    used.set(run.sandboxId, [vcpu + ran * BigInt(size.vcpus), memory + ran * BigInt(size.memory_mib)]);
  }
  const ids = [...new Set([...billed.keys(), ...used.keys()])];
  return ids.flatMap((id) => {
    const recorded = (used.get(id) ?? [0n, 0n]).map((sum) => Number(sum) / 1e6);
    const shown = billed.get(id) ?? [0, 0];
    // Half a microsecond of the smallest size: a row is rounded once, and there may be one for each of two days.
    const same = recorded.every((amount, index) => Math.abs(amount - shown[index]!) < 5e-7);
    return same ? [] : [`sandbox ${id} used ${recorded.join()} and is billed ${shown.join()}`];
  });
}
