import type { Context } from '../../context.js';
import { serializerOf } from '../../http/serializer.js';
import { instantFromMicros, type Instant } from '../../lib/instant.js';
import { getEvent } from '../events/queries.js';
import { EventResponse } from '../events/schema.js';
import type { EventRenderer, EventTextRow } from './event-text.js';
import { recentMonths } from './month-window.js';
import { getRecentEvent } from './page-queries.js';
import { presentEvent } from './present.js';

const serializeEvent = serializerOf(EventResponse);

export async function showEvent(
  ctx: Context,
  renderer: EventRenderer,
  orgId: string,
  id: string,
): Promise<string | undefined> {
  const recent = await readRecent(ctx, orgId, id);
  if (recent) return renderer.render(orgId, recent);
  const row = await getEvent(ctx.pool, orgId, id);
  return row && serializeEvent(presentEvent(row));
}

/** Undefined unless the event is of the newest months and its payload is short. */
async function readRecent(
  { reads, now }: Context,
  orgId: string,
  id: string,
): Promise<EventTextRow | undefined> {
  const window = recentMonths(now());
  const createdAt = instantOfId(id);
  if (createdAt === undefined || createdAt < window.from || createdAt >= window.to) return undefined;
  const event = await getRecentEvent(reads, orgId, id, window);
  return event?.payload === null ? undefined : event;
}

/** The instant in a UUID of version 7. An imported event may have happened at another time. */
function instantOfId(id: string): Instant | undefined {
  const isVersion7 = id.charAt(14) === '7';
  if (!isVersion7) return undefined;
  return instantFromMicros(BigInt(`0x${id.slice(0, 8)}${id.slice(9, 13)}`) * 1000n);
}
