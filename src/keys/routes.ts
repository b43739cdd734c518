import { Type } from 'typebox';
import { callerOf } from '../access/caller.js';
import { accessOf } from '../access/key-queries.js';
import { contextOf } from '../access/request-context.js';
import type { Context, Shared } from '../context.js';
import type { Transaction } from '../db/transaction.js';
import { ApiError } from '../http/errors.js';
import { readCursor } from '../http/parameters.js';
import { answers, answersToWrite, type App } from '../http/route.js';
import { Field, MessageResponse, PageQuery, Uuid } from '../http/schema.js';
import type { Writer } from '../idempotency/keyed.js';
import { writerOf } from '../idempotency/keyed.js';
import { WriteHeaders } from '../idempotency/schema.js';
import { inWrite } from '../idempotency/write.js';
import { PAGE_LIMIT, toPage } from '../lib/page.js';
import { addKey } from './create.js';
import { lockCallerKey } from './lock-caller-key.js';
import { presentKey } from './present.js';
import { getKey, pageKeys, type ShownKeyRow } from './queries.js';
import { readAccess, refuseBroaderAccess } from './requested-access.js';
import { revokeLocked } from './revoke.js';
import { DEFAULT_OVERLAP_SECS, rotateLocked } from './rotate.js';
import {
  CreateKeyRequest,
  KeyResponse,
  KeyWithSecret,
  PaginatedKeyResponse,
  RotateKeyRequest,
} from './schema.js';

const tags = ['keys'];
const params = Type.Object({ id: Field(Uuid, 'The id of the key.') });

export function keyRoutes(app: App, ctx: Shared): void {
  app.get(
    '/v1/keys',
    {
      schema: {
        operationId: 'list_keys',
        scope: 'keys:read',
        summary: 'List API keys, revoked ones too, oldest first',
        description: 'Returns one page of the keys of the organization, without their secrets.',
        tags,
        querystring: Type.Object(PageQuery, { additionalProperties: false }),
        response: answers(PaginatedKeyResponse),
      },
    },
    async (request) => {
      const { orgId } = callerOf(request);
      const { cursor, limit = PAGE_LIMIT.default } = request.query;
      const binding = ['keys'];
      const after = readCursor(ctx.cursors, orgId, binding, cursor) as [string, string] | undefined;
      const rows = await pageKeys(contextOf(request).pool, orgId, after, limit + 1);
      return toPage(
        rows,
        limit,
        (row) => presentKey(row, ctx.now()),
        ({ created_at, id }) => ctx.cursors.encode(orgId, binding, [created_at, id]),
      );
    },
  );

  app.post(
    '/v1/keys',
    {
      schema: {
        operationId: 'create_key',
        scope: 'keys:write',
        summary: 'Create an API key that may do no more than the one that creates it',
        description: 'Creates a key and shows its secret once. The service stores only a hash of the secret.',
        tags,
        headers: WriteHeaders,
        body: CreateKeyRequest,
        response: answersToWrite(KeyWithSecret, 'key_exceeds_caller'),
      },
    },
    (request, reply) => {
      const caller = writerOf(request, reply);
      const { name } = request.body;
      const at = ctx.now();
      const access = readAccess(request.body, at);
      const { orgId, actor } = caller;
      return withSecret(contextOf(request), caller, async (tx) => {
        refuseBroaderAccess(await lockCallerKey(tx, caller, ctx.now()), access);
        return addKey(tx, { orgId, name, access, actor, at });
      });
    },
  );

  app.get(
    '/v1/keys/:id',
    {
      schema: {
        operationId: 'get_key',
        scope: 'keys:read',
        summary: 'Get an API key',
        description: 'Returns one key of the organization by its id, without its secret.',
        tags,
        params,
        response: answers(KeyResponse, 'key_not_found'),
      },
    },
    async (request) => {
      const row = await getKey(contextOf(request).pool, callerOf(request).orgId, request.params.id);
      if (!row) throw new ApiError('key_not_found');
      return presentKey(row, ctx.now());
    },
  );

  app.post(
    '/v1/keys/:id/rotate',
    {
      schema: {
        operationId: 'rotate_key',
        scope: 'keys:write',
        summary: 'Give an API key a new secret; the previous one works for a while',
        description:
          'Returns a new secret for the key. Until `overlap_secs` are over the previous secret works too, but it cannot create or rotate keys. Store the answer, or keep another key that can rotate this one.',
        tags,
        params,
        headers: WriteHeaders,
        body: RotateKeyRequest,
        response: answersToWrite(
          KeyWithSecret,
          'key_exceeds_caller',
          'key_not_found',
          'invalid_state_transition',
        ),
      },
    },
    (request, reply) => {
      const caller = writerOf(request, reply);
      const { overlap_secs = DEFAULT_OVERLAP_SECS } = request.body;
      return withSecret(contextOf(request), caller, async (tx) => {
        const { id } = request.params;
        const own = await lockCallerKey(tx, caller, ctx.now(), { changed: id });
        const key = await getKey(tx, caller.orgId, id);
        if (!key) throw new ApiError('key_not_found');
        // The new secret would open all that the key opens.
        refuseBroaderAccess(own, accessOf(key));
        return rotateLocked(tx, key, caller.actor, overlap_secs, ctx.now());
      });
    },
  );

  app.delete(
    '/v1/keys/:id',
    {
      schema: {
        operationId: 'revoke_key',
        scope: 'keys:write',
        summary: 'Revoke an API key with all its secrets',
        description: 'Ends the key at once. A revoked key stays in the list and cannot be restored.',
        tags,
        params,
        headers: WriteHeaders,
        response: answersToWrite(MessageResponse, 'key_not_found'),
      },
    },
    (request, reply) => {
      const caller = writerOf(request, reply);
      return inWrite(contextOf(request), caller, async (tx) => {
        const { id } = request.params;
        await lockCallerKey(tx, caller, ctx.now(), { changed: id });
        const key = await getKey(tx, caller.orgId, id);
        if (!key) throw new ApiError('key_not_found');
        await revokeLocked(tx, key, caller.actor, ctx.now());
        return { message: `the key "${key.name}" is revoked` };
      });
    },
  );
}

/** A write whose answer shows a secret. The stored answer has none. */
async function withSecret(
  ctx: Context,
  caller: Writer,
  work: (tx: Transaction) => Promise<{ row: ShownKeyRow; key: string }>,
): Promise<KeyWithSecret> {
  const made = async (tx: Transaction) => {
    const { row, key } = await work(tx);
    return { ...presentKey(row, ctx.now()), key };
  };
  const answer = await inWrite<KeyWithSecret>(ctx, caller, made, (shown) => ({ ...shown, key: null }));
  // Earlier releases stored answers without these fields.
  const { key, previous_secret_until } = answer;
  return { ...answer, key: key ?? null, previous_secret_until: previous_secret_until ?? null };
}
