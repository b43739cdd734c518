import { recordEvent } from '../audit/events/record.js';
import type { EventActor } from '../audit/events/schema.js';
import type { Pool } from '../db/pool.js';
import { inTransaction } from '../db/transaction.js';
import { ExplainedError } from '../lib/explained-error.js';
import { now } from '../lib/instant.js';
import { LIMITS, SWITCHES, type Limit, type Limits, type Switch } from './limits.js';
import { getLimits, lockQuotas, updateLimits } from './queries.js';

const MAX_LIMIT = 2_147_483_647;
const OPTIONAL_SUFFIX = '_per_sandbox';

/** Reads `max_sandboxes=10`, `max_vcpus=unlimited`, `hard_cap=true`. The suffix `_per_sandbox` is optional. */
export function parseQuotas(words: readonly string[]): Partial<Limits> {
  return Object.assign({}, ...words.map(parseQuota)) as Partial<Limits>;
}

function parseQuota(word: string): Partial<Limits> {
  const [given = '', value, ...rest] = word.split('=');
  const name = [...LIMITS, ...SWITCHES].find((known) => known === given || known === given + OPTIONAL_SUFFIX);
  if (!name) {
    throw new ExplainedError(
      `there is no quota "${given}": there are ${[...LIMITS, ...SWITCHES].join(', ')}`,
    );
  }
  if (value === undefined || rest.length > 0) throw new ExplainedError(`write ${name}=VALUE, not "${word}"`);
  return { [name]: isSwitch(name) ? parseSwitch(name, value) : parseLimit(name, value) };
}

function isSwitch(name: Limit | Switch): name is Switch {
  return (SWITCHES as readonly string[]).includes(name);
}

function parseSwitch(name: Switch, value: string): boolean {
  if (value !== 'true' && value !== 'false') throw new ExplainedError(`${name} must be true or false`);
  return value === 'true';
}

function parseLimit(name: Limit, value: string): number | null {
  if (value === 'unlimited') return null;
  const limit = /^\d{1,10}$/.test(value) ? Number(value) : NaN;
  if (!(limit <= MAX_LIMIT))
    throw new ExplainedError(`${name} must be "unlimited" or a whole number from 0 to ${MAX_LIMIT}`);
  return limit;
}

/** Changes quotas. Existing sandboxes and volumes stay, even above a lowered limit. Returns the quotas that differ. */
export async function setQuotas(
  pool: Pool,
  orgId: string,
  wanted: Partial<Limits>,
  actor: EventActor,
): Promise<{ before: Partial<Limits>; after: Partial<Limits> }> {
  return inTransaction(pool, async (tx) => {
    await lockQuotas(tx, orgId, 'exclusive');
    const limits = await getLimits(tx, orgId);
    if (!limits) throw new ExplainedError('the organization is gone');
    const changed = Object.entries(wanted).filter(
      ([name, value]) => limits[name as Limit | Switch] !== value,
    );
    const after: Partial<Limits> = Object.fromEntries(changed);
    const before: Partial<Limits> = Object.fromEntries(
      changed.map(([name]) => [name, limits[name as Limit | Switch]]),
    );
    if (changed.length === 0) return { before, after };
    const at = now();
    await updateLimits(tx, orgId, after, at);
    await recordEvent(tx, {
      orgId,
      type: 'quota_changed',
      actor,
      resourceId: null,
      at,
      payload: { before, after },
    });
    return { before, after };
  });
}
