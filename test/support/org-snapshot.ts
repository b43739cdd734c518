import type { TestService } from './service.js';

const TABLES = [
  'sandboxes',
  'sandbox_labels',
  'label_periods',
  'usage_days',
  'usage_totals',
  'volumes',
  'events',
  'accruals',
  'api_keys',
  'runs',
  'quotas',
  'org_members',
  'member_links',
  'console_sessions',
  'member_invitations',
  'member_passkeys',
  'idempotency_keys',
  'webhooks',
  'webhook_deliveries',
  'terminal_tickets',
  'sandbox_sessions',
  'previews',
  'pools',
  'registry_credentials',
  'snapshots',
  'templates',
  'template_contexts',
  'template_logs',
  'template_layers',
  'pauses',
  'budgets',
];

const DIGESTS = TABLES.map(
  (table) => `
    select '${table}' as name, count(*)::int as rows, md5(string_agg(row, ',' order by row)) as digest
    from (select (to_jsonb(t) - '{seen_at,next_check_at,checked_until,used_ratio}'::text[])::text as row from ${table} t where org_id = $1) as ${table}_rows`,
).join(' union all ');

/** The number and a digest of the rows of an organization, by table: a thousand tests compare them. */
export async function snapshot(service: TestService, orgId: string): Promise<unknown[]> {
  return (await service.ctx.pool.query(DIGESTS, [orgId])).rows;
}
