import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';

export interface WorkerIdentity {
  id: string;
  runtime: string;
  name: string;
  capabilities: readonly string[];
  vcpus: number;
  memoryMib: number;
  diskMib: number | null;
  address: string | null;
  addressPlace: string | null;
}

/**
 * Takes or renews the lease by the clock of the database. Returns its epoch, or undefined when another process has it.
 * `ended`: a holder that is known to have ended.
 */
export async function takeLease(
  sql: Sql,
  worker: WorkerIdentity,
  { holder, ttlMs, ended }: { holder: string; ttlMs: number; ended: string | null },
): Promise<number | undefined> {
  const { rows } = await sql.query<{ epoch: number }>(
    `insert into workers as w (id, runtime, name, capabilities, vcpus, memory_mib, disk_mib, holder, epoch, expires_at, registered_at,
       address, address_place)
     values ($1, $2, $3, $4, $5, $6, $7, $8, 1, clock_timestamp() + $9 * interval '1 millisecond', clock_timestamp(), $11, $12)
     on conflict (id) do update set
       runtime = excluded.runtime, name = excluded.name, capabilities = excluded.capabilities,
       vcpus = excluded.vcpus, memory_mib = excluded.memory_mib, disk_mib = excluded.disk_mib,
       epoch = w.epoch + (w.holder <> excluded.holder)::int,
       holder = excluded.holder, expires_at = excluded.expires_at,
       address = excluded.address, address_place = excluded.address_place
     where w.holder = excluded.holder or w.holder = $10 or w.expires_at <= clock_timestamp()
     returning epoch`,
    [
      worker.id,
      worker.runtime,
      worker.name,
      worker.capabilities,
      worker.vcpus,
      worker.memoryMib,
      worker.diskMib,
      holder,
      ttlMs,
      ended,
      worker.address,
      worker.addressPlace,
    ],
  );
  return rows[0]?.epoch;
}

/**
 * Ends the effect of a clock of the database that was set back: no lease lasts longer than `ttlMs`, so none ends later.
 */
export async function shortenLeases(sql: Sql, ttlMs: number): Promise<void> {
  await sql.query(
    `update workers set expires_at = clock_timestamp() + $1 * interval '1 millisecond'
     where expires_at > clock_timestamp() + $1 * interval '1 millisecond'`,
    [ttlMs],
  );
}

export async function readHolder(sql: Sql, workerId: string): Promise<string | undefined> {
  const { rows } = await sql.query<{ holder: string }>('select holder from workers where id = $1', [
    workerId,
  ]);
  return rows[0]?.holder;
}

export interface WorkerAddress {
  alive: boolean;
  address: string | null;
  address_place: string | null;
}

/** Where the process is that acts on an engine. */
export async function readWorkerAddress(sql: Sql, workerId: string): Promise<WorkerAddress | undefined> {
  const { rows } = await sql.query<WorkerAddress & Record<string, unknown>>(
    'select expires_at > clock_timestamp() as alive, address, address_place from workers where id = $1',
    [workerId],
  );
  return rows[0];
}

export async function endLease(sql: Sql, workerId: string, epoch: number): Promise<void> {
  await sql.query('update workers set expires_at = clock_timestamp() where id = $1 and epoch = $2', [
    workerId,
    epoch,
  ]);
}

/** The shared lock keeps the epoch until the transaction ends. */
export async function lockEpoch(tx: Sql, workerId: string, epoch: number): Promise<boolean> {
  const { rowCount } = await tx.query('select from workers where id = $1 and epoch = $2 for share', [
    workerId,
    epoch,
  ]);
  return rowCount === 1;
}

export interface WorkerRow {
  id: string;
  runtime: string;
  name: string;
  vcpus: number;
  memory_mib: number;
  disk_mib: number | null;
  alive: boolean;
  expires_at: Instant;
  used_vcpus: number;
  used_memory_mib: number;
  used_disk_mib: number;
  capabilities: string[];
}

/** The workers of a runtime, or all, with the sums of their runs and disks. */
export async function listWorkers(sql: Sql, runtime: string | null): Promise<WorkerRow[]> {
  const { rows } = await sql.query<WorkerRow & Record<string, unknown>>(
    `select w.id, w.runtime, w.name, w.vcpus, w.memory_mib, w.disk_mib, w.capabilities,
       w.expires_at > clock_timestamp() as alive, w.expires_at,
       coalesce(r.vcpus, 0)::float8 as used_vcpus,
       coalesce(r.memory_mib, 0)::float8 as used_memory_mib,
       coalesce(d.disk_mib, 0)::float8 as used_disk_mib
     from workers w
     left join lateral (
       select sum(vcpus) as vcpus, sum(memory_mib) as memory_mib from runs
       where worker_id = w.id and end_reason is null
     ) r on true
     left join lateral (
       select sum(disk_mib) as disk_mib from sandboxes
       where worker_id = w.id and destroyed_at is null and disk_mib > 0
     ) d on true
     where $1::text is null or w.runtime = $1
     order by w.name, w.id`,
    [runtime],
  );
  return rows;
}

type Size = Pick<WorkerRow, 'vcpus' | 'memory_mib' | 'disk_mib'>;

/** Also for requests, which see no worker. Undefined: the worker is given up. */
export async function getCapacity(sql: Sql, id: string): Promise<Size | undefined> {
  const { rows } = await sql.query<{ [Part in keyof Size]: Size[Part] | null }>(
    'select vcpus, memory_mib, disk_mib from worker_capacity($1)',
    [id],
  );
  const { vcpus, memory_mib, disk_mib } = rows[0]!;
  return vcpus === null || memory_mib === null ? undefined : { vcpus, memory_mib, disk_mib };
}

export async function liveWorkers(sql: Sql): Promise<string[]> {
  const { rows } = await sql.query<{ name: string }>(
    'select name from workers where expires_at > clock_timestamp() order by name',
  );
  return rows.map(({ name }) => name);
}

export async function lockWorker(tx: Sql, id: string): Promise<{ alive: boolean; name: string } | undefined> {
  const { rows } = await tx.query<{ alive: boolean; name: string }>(
    'select expires_at > clock_timestamp() as alive, name from workers where id = $1 for update',
    [id],
  );
  return rows[0];
}

export async function deleteWorker(tx: Sql, workerId: string): Promise<void> {
  await tx.query('delete from workers where id = $1', [workerId]);
}
