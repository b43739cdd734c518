import { FULL_ACCESS } from '../src/access/access.js';
import { operator } from '../src/audit/events/actor.js';
import { refuseOverBudget } from '../src/budgets/check.js';
import { measureBudget } from '../src/budgets/measure.js';
import { insertBudget } from '../src/budgets/queries.js';
import { storeDays } from '../src/budgets/usage-queries.js';
import type { Budget } from '../src/budgets/budget.js';
import { connectAlone, type Statement } from '../src/db/pool.js';
import { now, startOfMonth } from '../src/lib/instant.js';
import { newId } from '../src/lib/uuid.js';
import { createOrg } from '../src/orgs/create.js';
import { parsePriceBook } from '../src/prices/price-book.js';
import { getQuotas } from '../src/quotas/queries.js';
import { median } from './median.js';
import { openStore } from './store.js';

const BENCH = operator('bench');
const BOOK = {
  currency: 'EUR',
  prices: { vcpu_hour: '0.05', memory_gib_hour: '0.01' },
  included: { vcpu_hour: '10' },
};
/** Reads of the quotas, in turns with the lookup of budgets and without. */
const READS = 5_000;

/**
 * Prints the time of the read of quotas that each start has, with the lookup of budgets and without. Then prints the
 * time of the check under a budget of each scope. So many sandboxes ran in this month, and each budget covers all.
 */
export async function budgetTimes(sandboxes: number, rounds: number): Promise<void> {
  const store = await openStore();
  try {
    const { id: orgId } = await createOrg(store.pool, { name: 'Bench', slug: 'bench' }, BENCH);
    const client = await connectAlone(store.address);
    await client.query('set statement_timeout = 0');
    const keyId = newId();
    const at = now();
    await client.query(
      `insert into sandboxes (org_id, id, name, slug, status, ephemeral, created_at, changed_at, spec)
       select $1, gen_random_uuid(), 'box-' || n, gen_random_uuid(), 'stopped', false, $2, $2,
         '{"labels":{"team":"ml"}}'
       from generate_series(1, $3::int) n`,
      [orgId, startOfMonth(at), sandboxes],
    );
    await client.query(
      `insert into runs (org_id, id, sandbox_id, vcpus, memory_mib, disk_mib, started_at, stopped_at, end_reason,
         started_by_key)
       select org_id, gen_random_uuid(), id, 2, 2048, 0, t.began, t.began + interval '1 second', 'test', $3
       from sandboxes cross join lateral (
         select $2::timestamptz + random() * ($4::timestamptz - $2::timestamptz - interval '1 second') as began) t
       where org_id = $1`,
      [orgId, startOfMonth(at), keyId, at],
    );
    await client.query('vacuum analyze');

    const statement = await capture(orgId);
    const lookup = /exists \(select from budgets .*?\) as has_budgets/;
    const texts = [statement.text, statement.text.replace(lookup, 'false as has_budgets')];
    const times: [number[], number[]] = [[], []];
    for (let read = 0; read < READS; read += 1) {
      const side = read % 2;
      const began = performance.now();
      await client.query({
        name: `quotas ${side}`,
        text: texts[side]!,
        values: [...(statement.values ?? [])],
      });
      times[side]!.push(performance.now() - began);
    }
    const [withLookup, without] = times.map((each) => 1_000 * median(each));
    console.log(`quotas: ${withLookup!.toFixed(0)} µs, without the lookup ${without!.toFixed(0)} µs`);

    const settings = { priceBook: parsePriceBook(JSON.stringify(BOOK), 'bench') };
    const ctx = { settings } as unknown as Parameters<typeof refuseOverBudget>[0];
    const actor = { kind: 'api_key', api_key_id: keyId, name: 'bench' } as const;
    const caller = { orgId, actor, access: FULL_ACCESS };
    const scopes = [
      { type: 'organization' },
      { type: 'label', key: 'team', value: 'ml' },
      { type: 'api_key', api_key_id: keyId },
    ] as const;
    const timesOf = async (count: number) => {
      const checks: number[] = [];
      for (let round = 0; round < count; round += 1) {
        const began = performance.now();
        await refuseOverBudget(ctx, client, caller, { at, labels: { team: 'ml' } });
        checks.push(performance.now() - began);
      }
      return checks;
    };
    for (const scope of scopes) {
      for (const measure of ['sandbox_hours', 'cost'] as const) {
        await client.query('delete from budgets');
        const budget = budgetOf(orgId, scope, measure);
        await insertBudget(client, budget);
        const first = await timesOf(1);
        const measured = await measureBudget(client, budget, { month: at, at, book: settings.priceBook });
        await storeDays(client, budget, measured!.unstored);
        const times = await timesOf(rounds);
        console.log(
          `${scope.type}, ${measure}, ${sandboxes} sandboxes: ${median(times).toFixed(1)} ms a start, ${first[0]!.toFixed(0)} ms before a worker stored the past days`,
        );
      }
    }
    await client.end();
  } finally {
    await store.close();
  }
}

function budgetOf(org_id: string, scope: Budget['scope'], measure: 'sandbox_hours' | 'cost'): Budget {
  const at = now();
  return {
    org_id,
    id: newId(),
    name: 'bench',
    scope,
    measure,
    limit: { value: 999_999_999_999n, scale: 0 },
    currency: measure === 'cost' ? 'EUR' : null,
    thresholds: [100],
    action: 'refuse_starts',
    created_at: at,
    created_by: BENCH,
    updated_at: at,
    checked_until: at,
  };
}

/** The statement of `getQuotas`. */
async function capture(orgId: string): Promise<Statement> {
  let captured: Statement | undefined;
  const sql = {
    query: (statement: string | Statement) => {
      if (typeof statement !== 'string') captured = statement;
      return Promise.resolve({ rows: [], rowCount: 0 });
    },
  };
  await getQuotas(sql, orgId, []);
  return captured!;
}
