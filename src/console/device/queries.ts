import type { Sql } from '../../db/pool.js';
import type { Instant } from '../../lib/instant.js';

export interface DeviceSignIn {
  hash: Buffer;
  user_code: string;
  /** The name of the device, in its own words. */
  client: string;
  /** The network of its address. */
  network: string;
  created_at: Instant;
  expires_at: Instant;
  denied: boolean;
  member_org_id: string | null;
  member_id: string | null;
}

type Row = DeviceSignIn & Record<string, unknown>;

const COLUMNS = 'hash, user_code, client, network, created_at, expires_at, denied, member_org_id, member_id';

/** False without an insert: the network, or all, have too many that wait. */
export async function insertDeviceSignIn(
  sql: Sql,
  device: Omit<DeviceSignIn, 'denied' | 'member_org_id' | 'member_id'>,
  { total, each }: { total: number; each: number },
): Promise<boolean> {
  const { hash, user_code, client, network, created_at, expires_at } = device;
  const { rowCount } = await sql.query(
    `insert into device_sign_ins (hash, user_code, client, network, created_at, expires_at)
     select $1, $2, $3, $4, $5, $6
     where (select count(*) from device_sign_ins where expires_at > $5) < $7
       and (select count(*) from device_sign_ins where network = $4 and expires_at > $5) < $8`,
    [hash, user_code, client, network, created_at, expires_at, total, each],
  );
  return rowCount === 1;
}

/** The one that still waits for a person. `lock`: for a change. */
export async function findWaiting(
  sql: Sql,
  userCode: string,
  at: Instant,
  { lock }: { lock: boolean },
): Promise<DeviceSignIn | undefined> {
  const { rows } = await sql.query<Row>(
    `select ${COLUMNS} from device_sign_ins
     where user_code = $1 and expires_at > $2 and not denied and member_id is null${lock ? ' for update' : ''}`,
    [userCode, at],
  );
  return rows[0];
}

/** Null for the member: the person denied it. */
export async function setAnswer(
  sql: Sql,
  hash: Buffer,
  member: { org_id: string; member_id: string } | null,
): Promise<void> {
  await sql.query(
    'update device_sign_ins set denied = $2::uuid is null, member_org_id = $2, member_id = $3 where hash = $1',
    [hash, member?.org_id ?? null, member?.member_id ?? null],
  );
}

/** Notes a poll of the device. `polledAt`: of the poll before. */
export async function notePoll(
  sql: Sql,
  hash: Buffer,
  at: Instant,
): Promise<(DeviceSignIn & { polledAt: Instant | null }) | undefined> {
  const { rows } = await sql.query<Row & { polledAt: Instant | null }>(
    `with before as (select hash, polled_at from device_sign_ins where hash = $1 for update)
     update device_sign_ins d set polled_at = $2 from before b where d.hash = b.hash
     returning ${COLUMNS.replace(/\w+/g, 'd.$&')}, b.polled_at as "polledAt"`,
    [hash, at],
  );
  return rows[0];
}

export async function deleteDeviceSignIn(sql: Sql, hash: Buffer): Promise<void> {
  await sql.query('delete from device_sign_ins where hash = $1', [hash]);
}

export async function deleteDeviceSignIns(sql: Sql, expired: Instant): Promise<void> {
  await sql.query('delete from device_sign_ins where expires_at <= $1', [expired]);
}
