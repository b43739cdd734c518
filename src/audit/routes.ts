import type { Readable } from 'node:stream';
import { Type } from 'typebox';
import { callerOf } from '../access/caller.js';
import { contextOf } from '../access/request-context.js';
import { makeSnapshotStreamer } from '../access/snapshot-stream.js';
import type { Shared } from '../context.js';
import { ApiError, badParameter } from '../http/errors.js';
import { preferredType } from '../http/preferred-type.js';
import { answers, answersTagged, type App } from '../http/route.js';
import { Field, PageQuery, Uuid, Words } from '../http/schema.js';
import { sendTagged } from '../http/entity-tag.js';
import { eventStream, FollowHeaders, StreamLimit, sendEvents } from '../http/sse.js';
import type { PacedSteps } from '../fairness/paced-steps.js';
import { lockPartitions } from './events/partition-queries.js';
import { EventResponse, PaginatedEventResponse } from './events/schema.js';
import { startExport, EXPORT_FORMATS, exportText } from './export/export.js';
import { EventRenderer } from './list/event-text.js';
import { FilterParameters, readEventFilter } from './list/filter.js';
import { list } from './list/list.js';
import { showEvent } from './list/show.js';
import { SharedReads, STREAM_FORMATS } from './list/shared-reads.js';
import { stream } from './list/stream.js';
import { encodePosition, parsePosition } from './list/stream-position.js';
import { OCSF_VERSION } from './ocsf/mapping.js';

const tags = ['events'];
const query = Type.Object(
  {
    ...FilterParameters,
    ...PageQuery,
  },
  { additionalProperties: false },
);

const TYPES = { ndjson: 'application/x-ndjson', csv: 'text/csv', ocsf: 'application/x-ndjson' } as const;
const FORMATS = { [TYPES.ndjson]: 'ndjson', [TYPES.csv]: 'csv' } as const;
const Text = Type.Unsafe<Readable>({ type: 'string' });
const exported = {
  ...answers(Type.Any()),
  200: {
    description: 'The events, as NDJSON, CSV or OCSF. An export that breaks off is not complete.',
    headers: {
      'next-cursor': Type.String({ description: 'The `cursor` of an export that continues after this one.' }),
    },
    content: { [TYPES.ndjson]: { schema: Text }, [TYPES.csv]: { schema: Text } },
  },
};

export function eventRoutes(app: App, ctx: Shared, steps: PacedSteps): void {
  const streamExport = makeSnapshotStreamer(ctx, {
    total: ctx.settings.maxExports,
    content: 'of the audit trail',
    beforeSnapshot: lockPartitions,
  });
  const renderer = new EventRenderer();
  const limit = new StreamLimit(
    ctx.settings.maxEventFollowers,
    'too many streams of events are open: close one, or try again later',
  );
  const reads = new SharedReads();

  app.get(
    '/v1/events',
    {
      schema: {
        operationId: 'list_events',
        scope: 'events:read',
        summary: 'List audit events, newest first',
        description: 'Returns one page of the audit trail of the organization. The filters can be combined.',
        tags,
        querystring: query,
        response: answersTagged(PaginatedEventResponse),
      },
    },
    async (request, reply) => {
      const { orgId } = callerOf(request);
      return sendTagged(reply, await list(contextOf(request), renderer, orgId, request.query), orgId);
    },
  );

  app.get(
    '/v1/events/export',
    {
      // A HEAD request would record an export in the audit trail.
      exposeHeadRoute: false,
      schema: {
        operationId: 'export_events',
        scope: 'events:read',
        summary: 'Export audit events, in the order of the log',
        description:
          'Sends the whole event log as it is at this moment. The export is itself an audit event. A whole export as NDJSON can be verified without the service, with `sandkeep events verify --file`. Its last line is the signed end; a file without that line is not complete. The header `next-cursor` is the `cursor` for later events. After an export that broke off, continue with `after_seq`.',
        tags,
        querystring: Type.Object(
          {
            ...FilterParameters,
            format: Type.Optional(
              Words([...EXPORT_FORMATS], {
                description: `The format of the export. \`ocsf\`: NDJSON with one event of OCSF ${OCSF_VERSION} on each line. Default: the one that the header \`Accept\` prefers, or NDJSON.`,
              }),
            ),
            cursor: Type.Optional(
              Type.String({
                minLength: 1,
                description:
                  'The `next-cursor` of an export or the `id` of a streamed event. The export begins after it.',
              }),
            ),
            after_seq: Type.Optional(
              Type.Integer({
                minimum: 0,
                maximum: Number.MAX_SAFE_INTEGER,
                description: 'The `seq` of an event. The export begins after it. Give this or `cursor`.',
              }),
            ),
          },
          { additionalProperties: false },
        ),
        response: exported,
      },
    },
    async (request, reply) => {
      const { format, cursor, after_seq, ...query } = request.query;
      const { orgId, actor } = callerOf(request);
      if (cursor !== undefined && after_seq !== undefined) {
        throw badParameter('after_seq', 'give cursor or after_seq, not both');
      }
      const chosen = format ?? FORMATS[preferredType(request, [TYPES.ndjson, TYPES.csv])];
      const afterSeq = after_seq ?? parsePosition(ctx.cursors, orgId, 'cursor', cursor) ?? 0;
      const asked = { orgId, actor, afterSeq, query, format: chosen };
      readEventFilter(query);
      return streamExport(request, reply, async function* (tx) {
        const begun = await startExport(contextOf(request).pool, tx, asked, ctx.now());
        void reply.header('vary', 'accept').type(`${TYPES[chosen]}; charset=utf-8`);
        void reply.header('next-cursor', encodePosition(ctx.cursors, orgId, begun.upToSeq));
        yield* exportText(tx, begun);
      });
    },
  );

  app.get(
    '/v1/events/stream',
    {
      // A HEAD request has no body to stream.
      exposeHeadRoute: false,
      schema: {
        operationId: 'stream_events',
        scope: 'events:read',
        summary: 'Follow audit events as they happen',
        description:
          'Sends server-sent events in the order of the log. The name of each is the event type and its data is the event. Its `id` is the `last-event-id` from which a client continues, at any process of the service. Without one the stream begins now, or with `since` at the first event that fits. The stream ends when the service stops or the key is refused.',
        tags,
        headers: FollowHeaders,
        querystring: Type.Object(
          {
            ...FilterParameters,
            format: Type.Optional(
              Words([...STREAM_FORMATS], {
                description: `The form of the data: an event as \`GET /v1/events/{event_id}\` returns it, or an event of OCSF ${OCSF_VERSION}. Default: \`sandkeep\`.`,
              }),
            ),
            cursor: Type.Optional(
              Type.String({
                minLength: 1,
                description:
                  'The place to begin at without `last-event-id`: the `next-cursor` of an export or the `id` of an event.',
              }),
            ),
          },
          { additionalProperties: false },
        ),
        response: { ...answers(Type.Any()), ...eventStream },
      },
    },
    async (request, reply) => {
      const events = await stream(contextOf(request), limit, reads, steps, request, reply, request.query);
      return sendEvents(reply, events, ctx.settings.usageStallMs);
    },
  );

  app.get(
    '/v1/events/:event_id',
    {
      schema: {
        operationId: 'get_event',
        scope: 'events:read',
        summary: 'Get an audit event',
        description: 'Returns one audit event of the organization by its id.',
        tags,
        params: Type.Object({ event_id: Field(Uuid, 'The id of the event.') }),
        response: answersTagged(EventResponse, 'sandbox_not_found'),
      },
    },
    async (request, reply) => {
      const { orgId } = callerOf(request);
      const text = await showEvent(contextOf(request), renderer, orgId, request.params.event_id);
      if (text === undefined) throw new ApiError('sandbox_not_found');
      return sendTagged(reply, text, orgId);
    },
  );
}
