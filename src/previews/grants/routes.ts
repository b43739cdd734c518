import { Type } from 'typebox';
import { callerOf } from '../../access/caller.js';
import { contextOf } from '../../access/request-context.js';
import type { Context } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import { readCursor } from '../../http/parameters.js';
import { answers, answersToWrite, type App } from '../../http/route.js';
import { Field, MessageResponse, PageQuery, Uuid } from '../../http/schema.js';
import { writerOf } from '../../idempotency/keyed.js';
import { WriteHeaders } from '../../idempotency/schema.js';
import { PAGE_LIMIT, toPage, type Page } from '../../lib/page.js';
import type { Instant } from '../../lib/instant.js';
import { getWorkerOf, type SandboxKey } from '../../sandboxes/queries.js';
import { sandboxKeyOf } from '../../sandboxes/sessions/address.js';
import { createPreview } from './create.js';
import { originsOf, presentPreview } from './present.js';
import { getPreview, pageOpen } from './queries.js';
import { revokePreview } from './revoke.js';
import {
  CreatePreviewRequest,
  PaginatedPreview,
  PreviewResponse,
  PreviewWithToken,
  type PreviewResponse as Shown,
} from './schema.js';

const tags = ['sandboxes'];
const ofSandbox = { sandbox_id: Field(Uuid, 'The id of the sandbox.') };
const one = Type.Object({ ...ofSandbox, preview_id: Field(Uuid, 'The id of the preview.') });
// The database has previews, so any process serves these routes.
const config = { onEngine: false };
// A key with this scope can open the port by a command anyway.
const scope = 'sandboxes:exec' as const;

export function previewRoutes(app: App): void {
  app.post(
    '/v1/sandboxes/:sandbox_id/previews',
    {
      config,
      schema: {
        operationId: 'create_sandbox_preview',
        scope,
        summary: 'Open a port of a sandbox to browsers and programs',
        description:
          'Makes a link to a TCP port of a sandbox, which need not run. The preview ends at its time, by its revocation, with the key that made it, and with the sandbox.',
        tags,
        params: Type.Object(ofSandbox),
        headers: WriteHeaders,
        body: CreatePreviewRequest,
        response: answersToWrite(
          PreviewWithToken,
          'sandbox_not_found',
          'public_previews_off',
          'quota_exceeded',
          'not_supported',
        ),
      },
    },
    (request, reply) => {
      const caller = writerOf(request, reply);
      const key = { ...sandboxKeyOf(request), requiredLabels: caller.access.labels };
      return createPreview(contextOf(request), caller, key, request.body);
    },
  );

  app.get(
    '/v1/sandboxes/:sandbox_id/previews',
    {
      config,
      schema: {
        operationId: 'list_sandbox_previews',
        scope,
        summary: 'List the open previews of a sandbox',
        description:
          'Returns one page of the open previews of all callers, the oldest first, without tokens.',
        tags,
        params: Type.Object(ofSandbox),
        querystring: Type.Object(PageQuery, { additionalProperties: false }),
        response: answers(PaginatedPreview, 'sandbox_not_found', 'not_supported'),
      },
    },
    (request) => {
      const { orgId, access } = callerOf(request);
      const key = { ...sandboxKeyOf(request), requiredLabels: access.labels };
      return listPreviews(contextOf(request), orgId, key, request.query);
    },
  );

  app.get(
    '/v1/sandboxes/:sandbox_id/previews/:preview_id',
    {
      config,
      schema: {
        operationId: 'get_sandbox_preview',
        scope,
        summary: 'Get a preview of a sandbox',
        description: 'Returns one preview without its token. One that has ended is found for a week.',
        tags,
        params: one,
        response: answers(PreviewResponse, 'sandbox_not_found', 'preview_not_found', 'not_supported'),
      },
    },
    async (request) => {
      const { orgId, access } = callerOf(request);
      const ctx = contextOf(request);
      const key = { ...sandboxKeyOf(request), requiredLabels: access.labels };
      const sandbox = await getWorkerOf(ctx.pool, orgId, key);
      if (!sandbox) throw new ApiError('sandbox_not_found');
      const row = await getPreview(ctx.pool, orgId, sandbox.id, request.params.preview_id);
      if (!row) throw new ApiError('preview_not_found');
      return presentPreview(row, originsOf(ctx), ctx.now());
    },
  );

  app.delete(
    '/v1/sandboxes/:sandbox_id/previews/:preview_id',
    {
      config,
      schema: {
        operationId: 'revoke_sandbox_preview',
        scope,
        summary: 'Revoke a preview of a sandbox',
        description: 'Ends the preview of any caller at once, with its open connections.',
        tags,
        params: one,
        headers: WriteHeaders,
        response: answersToWrite(MessageResponse, 'sandbox_not_found', 'preview_not_found'),
      },
    },
    (request, reply) => {
      const caller = writerOf(request, reply);
      const key = { ...sandboxKeyOf(request), requiredLabels: caller.access.labels };
      return revokePreview(contextOf(request), caller, key, request.params.preview_id);
    },
  );
}

async function listPreviews(
  ctx: Context,
  orgId: string,
  key: SandboxKey,
  { cursor, limit = PAGE_LIMIT.default }: PageQuery,
): Promise<Page<Shown>> {
  const sandbox = await getWorkerOf(ctx.pool, orgId, key);
  if (!sandbox) throw new ApiError('sandbox_not_found');
  const binding = ['previews', sandbox.id];
  const after = readCursor(ctx.cursors, orgId, binding, cursor) as [Instant, string] | undefined;
  const at = ctx.now();
  const rows = await pageOpen(ctx.pool, orgId, sandbox.id, { at, after, limit: limit + 1 });
  return toPage(
    rows,
    limit,
    (row) => presentPreview(row, originsOf(ctx), at),
    ({ created_at, id }) => ctx.cursors.encode(orgId, binding, [created_at, id]),
  );
}
