import type { Sql } from '../db/pool.js';
import { prepared } from '../db/prepared.js';
import type { Instant } from '../lib/instant.js';
import { decimalText, readDecimal } from '../prices/price.js';
import { KEEP_LABEL, type Budget, type BudgetScope } from './budget.js';

const COLUMNS = `org_id, id, name, scope, label_key, label_value, api_key_id, measure, trim_scale(amount)::text as amount,
  currency, thresholds, action, created_at, created_by, updated_at, checked_until`;

type Row = Omit<Budget, 'scope' | 'limit'> & {
  [column: string]: unknown;
  scope: BudgetScope['type'];
  label_key: string | null;
  label_value: string | null;
  api_key_id: string | null;
  amount: string;
};

function toBudget({ scope: type, label_key, label_value, api_key_id, amount, ...row }: Row): Budget {
  return { ...row, limit: readDecimal(amount), scope: scopeOf() };

  function scopeOf(): BudgetScope {
    switch (type) {
      case 'organization':
        return { type };
      case 'label':
        return { type, key: label_key!, value: label_value! };
      case 'api_key':
        return { type, api_key_id: api_key_id! };
    }
  }
}

/** Throws the violation of `budgets_name` for a name that is taken. */
export async function insertBudget(tx: Sql, budget: Budget): Promise<void> {
  const { scope } = budget;
  const [key, value] = scope.type === 'label' ? [scope.key, scope.value] : [null, null];
  await tx.query(
    `insert into budgets (org_id, id, name, scope, label_key, label_value, api_key_id, measure, amount, currency,
       thresholds, action, created_at, created_by, updated_at, checked_until, next_check_at)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $16)`,
    [
      budget.org_id,
      budget.id,
      budget.name,
      scope.type,
      key,
      value,
      scope.type === 'api_key' ? scope.api_key_id : null,
      budget.measure,
      decimalText(budget.limit),
      budget.currency,
      budget.thresholds,
      budget.action,
      budget.created_at,
      JSON.stringify(budget.created_by),
      budget.updated_at,
      budget.checked_until,
    ],
  );
}

/** Locks the organization until the transaction ends, so that no other budget is added meanwhile. */
export async function countBudgets(tx: Sql, orgId: string): Promise<number> {
  await tx.query('select 1 from orgs where id = $1 for update', [orgId]);
  const { rows } = await tx.query<{ count: number }>(
    'select count(*)::int as count from budgets where org_id = $1',
    [orgId],
  );
  return rows[0]!.count;
}

export async function getBudget(sql: Sql, orgId: string, id: string): Promise<Budget | undefined> {
  const { rows } = await sql.query<Row>(`select ${COLUMNS} from budgets where org_id = $1 and id = $2`, [
    orgId,
    id,
  ]);
  return rows[0] && toBudget(rows[0]);
}

export async function lockBudget(tx: Sql, orgId: string, id: string): Promise<Budget | undefined> {
  const { rows } = await tx.query<Row>(
    `select ${COLUMNS} from budgets where org_id = $1 and id = $2 for update`,
    [orgId, id],
  );
  return rows[0] && toBudget(rows[0]);
}

/** By name, after `after`. */
export async function getBudgets(
  sql: Sql,
  orgId: string,
  after: string | undefined,
  limit: number,
): Promise<Budget[]> {
  const { rows } = await sql.query<Row>(
    `select ${COLUMNS} from budgets where org_id = $1 and ($2::text is null or name > $2) order by name limit $3`,
    [orgId, after ?? null, limit],
  );
  return rows.map(toBudget);
}

/** The budgets that can refuse a start, the oldest first. */
export async function getEnforced(sql: Sql, orgId: string): Promise<Budget[]> {
  const { rows } = await sql.query<Row>(
    prepared(
      `select ${COLUMNS} from budgets where org_id = $1 and action <> 'warn' order by created_at, id`,
      [orgId],
    ),
  );
  return rows.map(toBudget);
}

export async function updateBudgetRow(tx: Sql, budget: Budget): Promise<void> {
  await tx.query(
    `update budgets set name = $3, amount = $4, thresholds = $5, action = $6, updated_at = $7, next_check_at = $7
     where org_id = $1 and id = $2`,
    [
      budget.org_id,
      budget.id,
      budget.name,
      decimalText(budget.limit),
      budget.thresholds,
      budget.action,
      budget.updated_at,
    ],
  );
}

export async function deleteBudgetRow(tx: Sql, orgId: string, id: string): Promise<void> {
  await tx.query('delete from budgets where org_id = $1 and id = $2', [orgId, id]);
}

/** Claims the budget, of any organization, whose check is due for longest. Skips those that another process checks. */
export async function claimDue(tx: Sql, at: Instant): Promise<Budget | undefined> {
  const { rows } = await tx.query<Row>(
    `select ${COLUMNS} from budgets where next_check_at <= $1 order by next_check_at limit 1 for update skip locked`,
    [at],
  );
  return rows[0] && toBudget(rows[0]);
}

export async function noteChecked(
  tx: Sql,
  { org_id, id }: Budget,
  { until, next, ratio }: { until: Instant; next: Instant; ratio: number | null },
): Promise<void> {
  await tx.query(
    `update budgets set checked_until = greatest(checked_until, $3), next_check_at = $4, used_ratio = $5
     where org_id = $1 and id = $2`,
    [org_id, id, until, next, ratio],
  );
}

/** After a failed check: the next checks are of other budgets. */
export async function postponeCheck(sql: Sql, { org_id, id }: Budget, next: Instant): Promise<void> {
  await sql.query('update budgets set next_check_at = $3 where org_id = $1 and id = $2', [org_id, id, next]);
}

/** `month`: its start. Returns the thresholds that have no notice of the month yet, ascending. */
export async function insertNotices(
  tx: Sql,
  { org_id, id }: Budget,
  month: Instant,
  thresholds: readonly number[],
): Promise<number[]> {
  const { rows } = await tx.query<{ threshold: number }>(
    `insert into budget_notices (org_id, budget_id, month, threshold)
     select $1, $2, $3::date, t from unnest($4::int[]) as t
     on conflict do nothing
     returning threshold`,
    [org_id, id, month.slice(0, 10), thresholds],
  );
  return rows.map(({ threshold }) => threshold).toSorted((a, b) => a - b);
}

/** Deletes the notices of other thresholds than these. The use can reach them again. */
export async function deleteNotices(
  tx: Sql,
  { org_id, id }: Budget,
  month: Instant,
  thresholds: readonly number[],
): Promise<void> {
  await tx.query(
    `delete from budget_notices
     where org_id = $1 and budget_id = $2 and month = $3::date and threshold <> all ($4::int[])`,
    [org_id, id, month.slice(0, 10), thresholds],
  );
}

/** Deletes the notices and the stored days of the months before. */
export async function deletePast(tx: Sql, { org_id, id }: Budget, month: Instant): Promise<void> {
  const values = [org_id, id, month.slice(0, 10)];
  await tx.query(
    'delete from budget_notices where org_id = $1 and budget_id = $2 and month < $3::date',
    values,
  );
  await tx.query('delete from budget_days where org_id = $1 and budget_id = $2 and day < $3::date', values);
}

/** Starting and running sandboxes that a budget covers and may stop, by id, after `after`. */
export async function listStoppable(
  sql: Sql,
  { org_id, scope }: Pick<Budget, 'org_id' | 'scope'>,
  after: string | null,
  limit: number,
): Promise<string[]> {
  const [key, value] = scope.type === 'label' ? [scope.key, scope.value] : [null, null];
  const { rows } = await sql.query<{ id: string }>(
    `select s.id from sandboxes s
     where s.org_id = $1 and s.removed_at is null and s.runtime is not null and s.status in ('starting', 'running')
       and ($2::uuid is null or s.id > $2)
       and ($4::text is null or exists (select from sandbox_labels l
         where l.org_id = $1 and l.sandbox_id = s.id and l.key = $4 and l.value = $5))
       and ($6::uuid is null or exists (select from runs r
         where r.org_id = $1 and r.id = s.run_id and r.started_by_key = $6))
       and not exists (select from sandbox_labels l
         where l.org_id = $1 and l.sandbox_id = s.id and l.key = $7 and l.value = $8)
     order by s.id
     limit $3`,
    [
      org_id,
      after,
      limit,
      key,
      value,
      scope.type === 'api_key' ? scope.api_key_id : null,
      KEEP_LABEL.key,
      KEEP_LABEL.value,
    ],
  );
  return rows.map(({ id }) => id);
}

/** Whether the budget is still the one that was checked. */
export async function isUnchanged(sql: Sql, { org_id, id, updated_at }: Budget): Promise<boolean> {
  const { rows } = await sql.query('select from budgets where org_id = $1 and id = $2 and updated_at = $3', [
    org_id,
    id,
    updated_at,
  ]);
  return rows.length === 1;
}

export async function isKeyActive(sql: Sql, orgId: string, keyId: string): Promise<boolean> {
  const { rows } = await sql.query(
    'select from api_keys where org_id = $1 and id = $2 and revoked_at is null',
    [orgId, keyId],
  );
  return rows.length === 1;
}
