import type { Sql } from '../../db/pool.js';
import { prepared } from '../../db/prepared.js';
import { write, type WriteTarget } from '../../db/write-batch.js';
import type { PublishedPort } from '../../spec/network-schema.js';

/** Those of every organization, although the session sees the rows of one: the function tells the numbers alone. */
export async function takenHostPorts(
  tx: Sql,
  { protocol, host_bind }: Pick<PublishedPort, 'protocol' | 'host_bind'>,
): Promise<number[]> {
  const { rows } = await tx.query<{ ports: number[] }>(
    prepared('select taken_host_ports($1, $2) as ports', [protocol, host_bind]),
  );
  return rows[0]!.ports;
}

export interface Holder {
  id: string;
  name: string;
}

/** The sandbox of the organization that has a port of the host, with all of these labels. */
export async function holderOf(
  tx: Sql,
  orgId: string,
  { protocol, host_bind, host_port }: PublishedPort,
  requiredLabels: Readonly<Record<string, string>>,
): Promise<Holder | undefined> {
  const { rows } = await tx.query<Holder & Record<string, unknown>>(
    `select s.id, s.name from published_ports p join sandboxes s on s.org_id = p.org_id and s.id = p.sandbox_id
     where p.org_id = $1 and p.protocol = $2 and p.host_port = $4 and family(p.host_bind) = family($3::inet)
       and (p.host_bind = $3::inet or $3::inet in ('0.0.0.0', '::') or p.host_bind in ('0.0.0.0', '::'))
       and ($5::jsonb = '{}' or s.spec::jsonb -> 'labels' @> $5::jsonb)
     limit 1`,
    [orgId, protocol, host_bind, host_port, JSON.stringify(requiredLabels)],
  );
  return rows[0];
}

export async function insertPublished(
  target: WriteTarget,
  orgId: string,
  sandboxId: string,
  ports: readonly PublishedPort[],
): Promise<void> {
  if (ports.length === 0) return;
  await write(
    target,
    (p) => `insert into published_ports (org_id, sandbox_id, protocol, host_bind, host_port, guest_port)
     select ${p(orgId)}, ${p(sandboxId)}, protocol, host_bind, host_port, guest_port
     from unnest(${p(ports.map(({ protocol }) => protocol))}::text[],
       ${p(ports.map(({ host_bind }) => host_bind))}::inet[], ${p(ports.map(({ host_port }) => host_port))}::int[],
       ${p(ports.map(({ guest_port }) => guest_port))}::int[]) as port (protocol, host_bind, host_port, guest_port)`,
  );
}
