import { isNarrowed } from '../../access/access.js';
import type { Context } from '../../context.js';
import { inReadSpan } from '../../db/traced.js';
import { ApiError } from '../../http/errors.js';
import { inBatches } from '../../fairness/batches.js';
import { getSandboxText, getSandboxTexts, type SandboxKey } from '../queries.js';
import { hasSpec, sandboxText, type SandboxTextRow } from '../row.js';

/** A sandbox as JSON text. Throws `sandbox_not_found`. */
export async function showSandbox(
  ctx: Context,
  lookups: SandboxLookups,
  orgId: string,
  key: SandboxKey,
): Promise<string> {
  const row = await find(ctx, lookups, orgId, key);
  if (!row) throw new ApiError('sandbox_not_found');
  return sandboxText(row, { labels: key.requiredLabels ?? {} });
}

async function find(
  ctx: Context,
  lookups: SandboxLookups,
  orgId: string,
  key: SandboxKey,
): Promise<SandboxTextRow | undefined> {
  const whole = () => getSandboxText(ctx.pool, orgId, key, { whole: true });
  // The label condition reads the specification, which may be long.
  if (isNarrowed({ labels: key.requiredLabels ?? {} })) return whole();
  const row = await inReadSpan(ctx.span, () => lookups.of(ctx.shared ?? ctx, orgId)(key));
  return !row || hasSpec(row) ? row : whole();
}

type Lookup = (key: SandboxKey) => Promise<SandboxTextRow | undefined>;

/**
 * While two lookups of an organization are in flight, its next lookups share one query. Clients poll a sandbox ten
 * times a second. At 32 connections sharing saves a sixth of the CPU time in Node and half of it in PostgreSQL; `npm
 * run bench -- --only "get one"` prints the current times.
 */
const LIMITS = { concurrency: 2, maxBatch: 100 };

/** The lookups in flight, by organization: each context belongs to one. */
export class SandboxLookups {
  private readonly byContext = new WeakMap<Context, Lookup>();

  of(ctx: Context, orgId: string): Lookup {
    const known = this.byContext.get(ctx);
    if (known) return known;
    const by = (column: 'id' | 'name') =>
      inBatches(async (values: readonly string[]) => {
        const [first, ...others] = values;
        if (others.length === 0) {
          const key = column === 'id' ? { id: first! } : { name: first! };
          return [await getSandboxText(ctx.reads, orgId, key, { whole: false })];
        }
        const rows = await getSandboxTexts(ctx.reads, orgId, column, values);
        const found = new Map(rows.map((row) => [row[column], row]));
        return values.map((value) => found.get(value));
      }, LIMITS);
    const [byId, byName] = [by('id'), by('name')];
    // PostgreSQL returns ids in lower case.
    const lookup: Lookup = (key) => ('id' in key ? byId(key.id.toLowerCase()) : byName(key.name));
    this.byContext.set(ctx, lookup);
    return lookup;
  }
}
