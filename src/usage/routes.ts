import type { Readable } from 'node:stream';
import { Type, type TSchema } from 'typebox';
import { callerOf } from '../access/caller.js';
import { contextOf } from '../access/request-context.js';
import type { Shared } from '../context.js';
import { inTransaction, type Transaction } from '../db/transaction.js';
import { readLabels } from '../http/parameters.js';
import { answers, type App } from '../http/route.js';
import { documented, Repeatable, Uuid, Words } from '../http/schema.js';
import { chooseFormat, makeAnswer } from './answer.js';
import { sandboxBreakdown, storageBreakdown } from './breakdown.js';
import { FOCUS_VERSION } from './focus-columns.js';
import { checkFocus, FOCUS_HEADER, sandboxCharges, storageCharges } from './focus-report.js';
import { checkLabelKeys, labelBreakdown } from './label-report.js';
import { MOST_LABEL_KEYS } from './label-times.js';
import { REPORT_FORMATS, type Format, type UsageFilter } from './queries.js';
import { LabelUsage, SandboxUsage, StorageUsage, UsageSummary } from './schema.js';
import { presentSummary, readMonth, summarize } from './summary.js';
import { readWindow } from './window.js';

const tags = ['billing'];
const form = 'an RFC 3339 date-time or a UTC date';

const dayOrTime = documented({ anyOf: [{ format: 'date-time' }, { format: 'date' }] });

const range = {
  since: Type.Optional(
    Type.String({
      ...dayOrTime,
      description: `The inclusive start of the range: ${form}. Default: the start of the current UTC month.`,
    }),
  ),
  until: Type.Optional(
    Type.String({
      ...dayOrTime,
      description: `The exclusive end of the range: ${form}, at most 366 days after \`since\`. Default: now.`,
    }),
  ),
};
const closed = { additionalProperties: false };

const format = {
  format: Type.Optional(
    Words([...REPORT_FORMATS], {
      description: `The format of the report. \`focus\`: CSV with the columns of FOCUS ${FOCUS_VERSION}, one charge for each UTC day and meter; it needs a price book and whole days. Default: the one that the header \`Accept\` prefers, or JSON.`,
    }),
  ),
};

const sandboxFilters = {
  sandbox_id: Repeatable(Uuid, 'Only this sandbox. The parameter can be repeated.'),
  labels: Type.Optional(
    Type.String({
      description:
        'A JSON object of strings, such as `{"team":"ml"}`. Only the time in which a sandbox had all of these labels is counted.',
    }),
  ),
};

export function usageRoutes(app: App, ctx: Shared): void {
  const answer = makeAnswer(ctx);

  app.get(
    '/v1/billing/usage',
    {
      schema: {
        operationId: 'get_usage',
        scope: 'billing:read',
        summary: 'Get the usage and the cost of a month',
        description:
          'Returns the usage of a UTC month by metric and day, and its cost by the price book of the installation.',
        tags,
        querystring: Type.Object(
          {
            month: Type.Optional(
              Type.String({
                ...documented({ pattern: '^\\d{4}-(0[1-9]|1[0-2])$' }),
                description: 'The UTC month, such as `2026-11`. Default: the current one.',
              }),
            ),
          },
          closed,
        ),
        response: {
          ...answers(UsageSummary),
          200: inEitherFormat<string>(UsageSummary, 'The report, as JSON, or as CSV if `Accept` prefers it.'),
        },
      },
    },
    async (request, reply) => {
      const now = ctx.now();
      const period = readMonth(request.query.month, now);
      const { orgId } = callerOf(request);
      const format = chooseFormat(request, reply);
      // The few rows are read before they are sent, so that a slow reader holds no connection.
      const summary = await inTransaction(contextOf(request).pool, async (tx) => {
        await tx.query('set transaction isolation level repeatable read, read only');
        return summarize(tx, orgId, period, now, ctx.settings.priceBook);
      });
      return presentSummary(summary, format);
    },
  );

  app.get(
    '/v1/billing/usage/sandbox',
    {
      exposeHeadRoute: false,
      schema: {
        operationId: 'get_sandbox_breakdown',
        scope: 'billing:read',
        summary: 'Get compute usage by sandbox and UTC day',
        description:
          'Returns the compute that each sandbox used on each UTC day of the range. The service computes it when it is read.',
        tags,
        querystring: Type.Object({ ...range, ...sandboxFilters, ...format }, closed),
        response: streamed(SandboxUsage),
      },
    },
    (request, reply) => {
      const window = readWindow(request.query, ctx.now());
      const filter = filterOf(callerOf(request).orgId, request.query);
      if (request.query.format === 'focus') {
        const book = checkFocus(window, ctx.settings.priceBook);
        return answer(request, reply, (tx) => withHeader(sandboxCharges(tx, filter, window, book)), 'csv');
      }
      const produce = (tx: Transaction, chosen: Format) => sandboxBreakdown(tx, filter, window, chosen);
      return answer(request, reply, produce, request.query.format);
    },
  );

  app.get(
    '/v1/billing/usage/labels',
    {
      exposeHeadRoute: false,
      schema: {
        operationId: 'get_label_breakdown',
        scope: 'billing:read',
        summary: 'Get compute usage and cost by values of labels and UTC day',
        description:
          'Returns the compute used with each value of a label on each UTC day of the range, and its cost. With several keys the rows are combinations of values. A label counts as it was while the sandbox ran. If it changed during a run, the usage is split at that instant. The costs of a day add up to the cost of the compute of the day, to the last digit.',
        tags,
        querystring: Type.Object(
          {
            key: Type.Array(Type.String({ minLength: 1 }), {
              minItems: 1,
              maxItems: MOST_LABEL_KEYS,
              description: `The key of the label, such as \`team\`. The parameter can be repeated, up to ${MOST_LABEL_KEYS} keys.`,
            }),
            ...range,
            ...sandboxFilters,
          },
          closed,
        ),
        response: streamed(LabelUsage),
      },
    },
    (request, reply) => {
      const window = readWindow(request.query, ctx.now());
      const { key: keys } = request.query;
      checkLabelKeys('key', keys);
      const filter = filterOf(callerOf(request).orgId, request.query);
      const question = { filter, keys, window, book: ctx.settings.priceBook };
      return answer(request, reply, (tx, format) => labelBreakdown(tx, question, format));
    },
  );

  app.get(
    '/v1/billing/usage/storage',
    {
      exposeHeadRoute: false,
      schema: {
        operationId: 'get_storage_breakdown',
        scope: 'billing:read',
        summary: 'Get storage usage by volume and UTC day',
        description:
          'Returns the storage that each volume used on each UTC day of the range. Usage of deleted volumes stays in the report.',
        tags,
        querystring: Type.Object({ ...range, ...format }, closed),
        response: streamed(StorageUsage),
      },
    },
    (request, reply) => {
      const window = readWindow(request.query, ctx.now());
      const { orgId } = callerOf(request);
      if (request.query.format === 'focus') {
        const book = checkFocus(window, ctx.settings.priceBook);
        return answer(request, reply, (tx) => withHeader(storageCharges(tx, orgId, window, book)), 'csv');
      }
      const produce = (tx: Transaction, chosen: Format) => storageBreakdown(tx, orgId, window, chosen);
      return answer(request, reply, produce, request.query.format);
    },
  );
}

async function* withHeader(charges: AsyncIterable<string>): AsyncGenerator<string> {
  yield FOCUS_HEADER;
  yield* charges;
}

function filterOf(orgId: string, query: { sandbox_id?: string[]; labels?: string }): UsageFilter {
  return { orgId, sandboxIds: query.sandbox_id, labels: readLabels('labels', query.labels) };
}

/** A streamed report. These routes have no `HEAD`, for which the report would be computed in vain. */
function streamed<T extends TSchema>(schema: T) {
  return {
    ...answers(schema),
    200: inEitherFormat<Readable>(
      schema,
      'The report, as JSON, or as CSV if `Accept` prefers it. A report that breaks off is not complete.',
    ),
  };
}

function inEitherFormat<Payload>(schema: TSchema, description: string) {
  return {
    description,
    content: {
      'application/json': { schema: Type.Unsafe<Payload>(schema) },
      'text/csv': { schema: Type.Unsafe<Payload>({ type: 'string' }) },
    },
  };
}
