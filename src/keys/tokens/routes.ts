import { Type } from 'typebox';
import { callerOf, type Caller } from '../../access/caller.js';
import { lockMemberAccess, lockMemberRow } from '../../access/lock-member.js';
import { contextOf } from '../../access/request-context.js';
import { ADMIN, covers } from '../../access/scopes.js';
import type { Context } from '../../context.js';
import { inTransaction } from '../../db/transaction.js';
import { ApiError } from '../../http/errors.js';
import { readCursor } from '../../http/parameters.js';
import { answers, answersToBody, type App } from '../../http/route.js';
import { Field, MessageResponse, PageQuery, Uuid } from '../../http/schema.js';
import { shortInstant } from '../../lib/instant.js';
import { PAGE_LIMIT, toPage } from '../../lib/page.js';
import { revokeLocked } from '../revoke.js';
import { createToken, DEFAULT_TOKEN_DAYS } from './create.js';
import { lockToken, pageTokens, type TokenRow } from './queries.js';
import { CreateTokenRequest, PaginatedTokenResponse, TokenWithSecret, type TokenResponse } from './schema.js';

/** The role decides nothing here: each member has tokens, which open no more than the member may. */
const common = { tags: ['keys'], scope: 'any' } as const;
const params = Type.Object({ token_id: Field(Uuid, 'The id of the token.') });

export function tokenRoutes(app: App): void {
  app.get(
    '/v1/tokens',
    {
      schema: {
        ...common,
        operationId: 'list_tokens',
        summary: 'List personal tokens, oldest first',
        description:
          'Returns one page of the valid personal tokens of the calling member, without their secrets. A caller with the scope `org:admin` gets those of every member, and another key none.',
        querystring: Type.Object(PageQuery, { additionalProperties: false }),
        response: answers(PaginatedTokenResponse),
      },
    },
    async (request) => {
      const { pool, cursors, now } = contextOf(request);
      const caller = callerOf(request);
      const { cursor, limit = PAGE_LIMIT.default } = request.query;
      const reach = reachOf(caller);
      const binding = ['tokens', reach ?? 'all'];
      const after = readCursor(cursors, caller.orgId, binding, cursor) as [string, string] | undefined;
      const rows =
        reach === undefined
          ? []
          : await pageTokens(pool, caller.orgId, { memberId: reach, at: now(), after, limit: limit + 1 });
      return toPage(rows, limit, presentToken, ({ created_at, id }) =>
        cursors.encode(caller.orgId, binding, [created_at, id]),
      );
    },
  );

  app.post(
    '/v1/tokens',
    {
      schema: {
        ...common,
        operationId: 'create_token',
        summary: 'Create a personal token of the calling member',
        description:
          'Creates a key that acts as the member, and shows its secret once. It opens no more than the role and the labels of the member at each moment, and ends with the membership. The caller needs a session of the console. The operation takes no `Idempotency-Key`, because the service would have to store the secret for it.',
        body: CreateTokenRequest,
        response: answersToBody(TokenWithSecret, 'member_required', 'quota_exceeded'),
      },
    },
    async (request) => {
      const { pool, now } = contextOf(request);
      const { member } = callerOf(request);
      if (!member) throw new ApiError('member_required');
      const { name, scopes, expires_in_days: days = DEFAULT_TOKEN_DAYS } = request.body;
      return inTransaction(pool, async (tx) => {
        const at = now();
        await lockMemberRow(tx, member.org_id, member.member_id, 'no key update');
        const owner = await lockMemberAccess(tx, member, 'any', at);
        const { token, secret } = await createToken(tx, owner, { name, scopes, days }, at);
        return { ...presentToken(token), token: secret };
      });
    },
  );

  app.delete(
    '/v1/tokens/:token_id',
    {
      config: { endsKeys: true },
      schema: {
        ...common,
        operationId: 'revoke_token',
        summary: 'Revoke a personal token',
        description:
          'Ends a token of the calling member at once. A caller with the scope `org:admin` ends the token of any member. A token may revoke itself.',
        params,
        response: answersToBody(MessageResponse, 'token_not_found'),
      },
    },
    async (request) => {
      const name = await revokeToken(contextOf(request), callerOf(request), request.params.token_id);
      return { message: `the personal token "${name}" is revoked` };
    },
  );
}

async function revokeToken(
  { pool, now }: Pick<Context, 'pool' | 'now'>,
  caller: Caller,
  id: string,
): Promise<string> {
  const reach = reachOf(caller);
  if (reach === undefined) throw new ApiError('token_not_found');
  return inTransaction(pool, async (tx) => {
    const token = await lockToken(tx, caller.orgId, id, reach);
    if (!token) throw new ApiError('token_not_found');
    await revokeLocked(tx, token, caller.actor, now());
    return token.name;
  });
}

/** The member whose tokens the caller sees. Null: every member. Undefined: none. */
function reachOf({ access, key, member }: Caller): string | null | undefined {
  if (covers(access.scopes, ADMIN)) return null;
  return member?.member_id ?? key?.member_id ?? undefined;
}

function presentToken(row: TokenRow): TokenResponse {
  const { id, name, prefix, scopes, member_id, email, created_at, expires_at, last_used_at } = row;
  if (expires_at === null) throw new Error(`the personal token ${id} has no end`);
  return {
    id,
    name,
    prefix,
    scopes,
    member_id,
    email,
    created_at: shortInstant(created_at),
    expires_at: shortInstant(expires_at),
    last_used_at: last_used_at && shortInstant(last_used_at),
  };
}
