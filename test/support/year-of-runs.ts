import type { Client } from './client.js';
import type { TestService } from './service.js';

const AT_ONCE = 20;

/**
 * Makes an organization with sandboxes (a multiple of twenty) that ran through 2025, except its first moments and its
 * last hour.
 */
export async function newOrgOfAYear(service: TestService, sandboxes: number, name: string): Promise<Client> {
  const client = await service.newOrg();
  // Small batches stay within the time limit of a statement on a busy machine.
  for (let made = 0; made < sandboxes; made += AT_ONCE) {
    const prefix = `${name}${made}-`;
    await service.ctx.pool.query(
      `insert into sandboxes (org_id, id, name, slug, status, ephemeral, created_at, changed_at)
       select $1, gen_random_uuid(), $2 || n, gen_random_uuid(), 'stopped', false, now(), now()
       from generate_series(1, ${AT_ONCE}) n`,
      [client.org.id, prefix],
    );
    await service.ctx.pool.query(
      `insert into runs (org_id, id, sandbox_id, vcpus, memory_mib, disk_mib, started_at, stopped_at, end_reason)
       select org_id, gen_random_uuid(), id, 3, 1000, 10, '2025-01-01T00:00:00.3Z', '2025-12-31T23:00:00Z', 'test'
       from sandboxes where org_id = $1 and starts_with(name, $2)`,
      [client.org.id, prefix],
    );
  }
  return client;
}
