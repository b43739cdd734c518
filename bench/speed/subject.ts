import { ask, type Api } from './api.js';
import type { Loaded } from './load.js';
import { FILE, type Subject } from './measures.js';
import type { Server } from './processes.js';
import type { Store } from './store.js';

/** The number of single reads. */
const READ = 1_000;

export function apiOf({ host, port }: Server, { orgs }: Loaded): Api {
  const { id: orgId, key } = orgs[0]!;
  return { host, port, key, orgId };
}

/** The targets of the requests for the first organization of a store. */
export async function subjectOf(store: Store, { orgs, until, dataSet }: Loaded, api: Api): Promise<Subject> {
  const { id: orgId, keyId } = orgs[0]!;
  const { rows } = await store.pool.query<{ id: string; name: string }>(
    `select id, name from (
       select id, name, row_number() over (order by id) - 1 as n, count(*) over () as total
       from sandboxes where org_id = $1 and removed_at is null) numbered
     where n % greatest(1, total / $2) = 0 order by md5(id::text) limit $2`,
    [orgId, READ],
  );
  const one = await store.pool.query<{ event_id: string }>(
    'select event_id from event_log where org_id = $1 and seq = 1',
    [orgId],
  );
  const volume = JSON.parse(await ask(api, '/v1/volumes/default')) as { id: string };
  return {
    ids: rows.map(({ id }) => id),
    names: rows.map(({ name }) => name),
    eventId: one.rows[0]!.event_id,
    keyId,
    until,
    volumeId: volume.id,
    lastSeq: dataSet.events,
  };
}

export async function putFile(api: Api, { volumeId }: Subject): Promise<void> {
  await ask(api, `/v1/volumes/${volumeId}/files/content`, {
    method: 'PUT',
    headers: { 'x-msb-file-path': FILE, 'content-type': 'application/octet-stream' },
    body: 'x'.repeat(4_096),
  });
}
