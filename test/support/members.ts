import type { Role } from '../../src/access/roles.js';
import { operator } from '../../src/audit/events/actor.js';
import { addMember } from '../../src/members/add.js';
import { makeLink } from '../../src/members/link.js';
import { inTransaction } from '../../src/db/transaction.js';
import { createToken, type TokenRequest } from '../../src/keys/tokens/create.js';
import { now } from '../../src/lib/instant.js';
import type { ChangedBy } from '../../src/members/owner-alone.js';
import type { MemberRow } from '../../src/members/queries.js';
import { sessionAt, type ConsoleSession } from './console.js';
import type { TestService } from './service.js';

let people = 0;

export function byOperator(): ChangedBy {
  return { actor: operator('test'), at: now() };
}

/** A new member of the organization. */
export async function newMember(
  { ctx }: Pick<TestService, 'ctx'>,
  orgId: string,
  role: Role,
  labels: Record<string, string> = {},
): Promise<MemberRow> {
  people += 1;
  const email = `person.number${people}@people.example.com`;
  return addMember(ctx.pool, orgId, { email, role, labels, displayName: null }, operator('test'));
}

export async function linkOf(
  { ctx }: Pick<TestService, 'ctx'>,
  orgId: string,
  { email }: Pick<MemberRow, 'email'>,
  minutes = 60,
): Promise<string> {
  const { token } = await makeLink(ctx.pool, orgId, email, minutes, operator('test'));
  return token;
}

export async function postLink(
  url: string,
  link: unknown,
  headers: Record<string, string> = {},
): Promise<Response> {
  return fetch(`${url}/console/session/link`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify({ link }),
  });
}

/** A new personal token of the member. */
export async function newToken(
  { ctx }: Pick<TestService, 'ctx'>,
  orgId: string,
  member: MemberRow,
  asked: Partial<TokenRequest> = {},
): Promise<{ id: string; secret: string }> {
  const owner = { ...member, org_id: orgId, member_id: member.id };
  const request = { name: 'test token', scopes: undefined, days: 30, ...asked };
  const { token, secret } = await inTransaction(ctx.pool, (tx) => createToken(tx, owner, request, now()));
  return { id: token.id, secret };
}

/** Signs a member in to the console as a browser does. */
export async function signInMember(
  service: Pick<TestService, 'ctx' | 'url'>,
  orgId: string,
  member: Pick<MemberRow, 'email'>,
): Promise<ConsoleSession> {
  const answer = await postLink(service.url, await linkOf(service, orgId, member));
  const text = await answer.text();
  if (answer.status !== 201) throw new Error(`the sign-in was answered ${answer.status}: ${text}`);
  const body = JSON.parse(text) as { csrf_token: string; expires_at: string };
  const [cookie] = answer.headers.getSetCookie()[0]!.split(';');
  return sessionAt(service.url, { cookie: cookie!, csrf: body.csrf_token, expiresAt: body.expires_at });
}

/** A request of a session, with the answer as text and as JSON. */
export async function send(by: ConsoleSession, method: string, path: string, body?: unknown) {
  const answer = await by.fetch(path, {
    method,
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await answer.text();
  return { status: answer.status, text, body: JSON.parse(text) };
}

/**
 * The status of a request whose caller loses its right meanwhile. The service may find that by itself before the
 * request does, and then cuts the connection: `cut`.
 */
export async function statusOrCut(answer: Promise<{ status: number }>): Promise<number | 'cut'> {
  return answer.then(
    ({ status }) => status,
    (error: Error) => {
      if ((error.cause as NodeJS.ErrnoException | undefined)?.code === 'UND_ERR_SOCKET')
        return 'cut' as const;
      throw error;
    },
  );
}

/** The status of a read by a session, which may end meanwhile. */
export async function statusOf(session: ConsoleSession, path = '/v1/me/org'): Promise<number | 'cut'> {
  const read = async () => {
    const answer = await session.fetch(path);
    await answer.arrayBuffer();
    return answer;
  };
  return statusOrCut(read());
}

/** Makes the members, each of one organization, the same account of a provider. */
export async function linkPerson(
  { ctx }: Pick<TestService, 'ctx'>,
  members: readonly Pick<MemberRow, 'id'>[],
): Promise<string> {
  const { rows } = await ctx.pool.query<{ id: string }>(
    `insert into people (id, issuer, subject, created_at, signed_in_at)
     values (gen_random_uuid(), 'https://provider.example.com', gen_random_uuid()::text, now(), now())
     returning id`,
  );
  await ctx.pool.query('update org_members set person_id = $1 where id = any ($2::uuid[])', [
    rows[0]!.id,
    members.map(({ id }) => id),
  ]);
  return rows[0]!.id;
}
