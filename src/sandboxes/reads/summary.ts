import { isNarrowed } from '../../access/access.js';
import type { Caller } from '../../access/caller.js';
import { countEventsByHour } from '../../audit/events/count-by-hour.js';
import type { Context } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import { addMillis, shortInstant, type Instant } from '../../lib/instant.js';
import { MOST_MEMBERS, MOST_POOLS } from '../pools/schema.js';
import { countStatuses, countWaiting } from './summary-queries.js';
import { HOURS, MOST_COUNTED, type SandboxSummary } from './summary-schema.js';

const HOUR_MS = 3_600_000;
/** Sandboxes that wait in pools are counted with the others, and taken off. */
const MOST_WARM = MOST_POOLS * MOST_MEMBERS;

/** The counts are those of the organization, so a key that is narrowed to labels is refused. */
export async function summarizeSandboxes(ctx: Context, { orgId, access }: Caller): Promise<SandboxSummary> {
  if (isNarrowed(access)) {
    const message =
      'the summary counts the sandboxes of the whole organization, and the key is narrowed to labels: list sandboxes instead';
    throw new ApiError('label_not_allowed', message, { labels: access.labels });
  }
  const hours = latestHours(ctx.now());
  const types = ['sandbox_started', 'sandbox_failed'] as const;
  const [statuses, waiting, events] = await Promise.all([
    countStatuses(ctx.pool, orgId, MOST_COUNTED + MOST_WARM),
    countWaiting(ctx.pool, orgId, MOST_COUNTED),
    countEventsByHour(ctx.pool, orgId, { types, since: hours[0]!, most: MOST_COUNTED }),
  ]);
  const byStatus = new Map(
    statuses.map(({ status, count, warm }) => [status, Math.min(count - warm, MOST_COUNTED)]),
  );
  const byHour = new Map(events.map(({ event_type, hour, count }) => [`${event_type} ${hour}`, count]));
  const countOf = (type: (typeof types)[number], hour: Instant) => byHour.get(`${type} ${hour}`) ?? 0;
  return {
    created: byStatus.get('created') ?? 0,
    starting: byStatus.get('starting') ?? 0,
    waiting,
    running: byStatus.get('running') ?? 0,
    stopping: byStatus.get('stopping') ?? 0,
    stopped: byStatus.get('stopped') ?? 0,
    failed: byStatus.get('failed') ?? 0,
    hours: hours.map((hour) => ({
      hour: shortInstant(hour),
      started: countOf('sandbox_started', hour),
      failed: countOf('sandbox_failed', hour),
    })),
  };
}

/** The starts of the latest UTC hours, the current one last. */
function latestHours(now: Instant): Instant[] {
  const current: Instant = `${now.slice(0, 13)}:00:00.000000Z`;
  return Array.from({ length: HOURS }, (_, place) => addMillis(current, (place - HOURS + 1) * HOUR_MS));
}
