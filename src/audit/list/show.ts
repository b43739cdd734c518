import type { Context } from '../../context.js';
import { prepared } from '../../db/prepared.js';
import { serializerOf } from '../../http/serializer.js';
import { instantFromMicros } from '../../lib/instant.js';
import { getEvent } from '../events/queries.js';
import { EventResponse } from '../events/schema.js';
import { AS_TEXTS, eventText, SHORT_COLUMNS, type EventTexts } from './event-text.js';
import { presentEvent } from './present.js';
import { windowAt, within } from './window.js';

/** An event as JSON text; undefined when the organization has none with this id. */
export async function showEvent(ctx: Context, orgId: string, id: string): Promise<string | undefined> {
  const recent = await readRecent(ctx, orgId, id);
  if (recent) return eventText(orgId, recent);
  const row = await getEvent(ctx.pool, orgId, id);
  return row && serializerOf(EventResponse)(presentEvent(row));
}

/** By one statement, if its id says that it is of the newest months, it is, and it is not long. */
async function readRecent(
  { reads, now }: Context,
  orgId: string,
  id: string,
): Promise<EventTexts | undefined> {
  const window = windowAt(now());
  const made = timeOf(id);
  if (made === undefined || made < window.from || made >= window.to) return undefined;
  const statement = prepared(
    `select ${SHORT_COLUMNS} from events
     where org_id = $1 and id = $2 and ${within('occurred_at', window)} and occurred_at = (
       select occurred_at from event_log where org_id = $1 and event_id = $2
       union all
       select occurred_at from unsealed_events where org_id = $1 and event_id = $2
       limit 1)`,
    [orgId, id],
  );
  const { rows } = await reads.query<EventTexts & Record<string, unknown>>({ ...statement, ...AS_TEXTS });
  return rows[0]?.[5] === null ? undefined : rows[0];
}

/** When an id was made that has its time in it (version 7). Events of our own have such ids; it is no more than a guess at theirs. */
function timeOf(id: string): string | undefined {
  if (id[14] !== '7') return undefined;
  return instantFromMicros(BigInt(`0x${id.slice(0, 8)}${id.slice(9, 13)}`) * 1000n);
}
