import type { FastifyRequest } from 'fastify';
import type { Sql } from '../db/pool.js';
import { ApiError } from '../http/errors.js';
import { TICKET_PROTOCOL } from '../http/upgrade.js';
import type { Instant } from '../lib/instant.js';
import { inBatches } from '../fairness/batches.js';
import type { Holder } from './holder.js';
import { findSecrets, type SecretRow } from './key-queries.js';
import { hashOf } from './key-secret.js';
import { findMemberSessions, ifStillOpen, type MemberSessionRow } from './member-session.js';
import { findSessions, ifOpen, type SessionRow } from './session-queries.js';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The route also accepts a ticket, which is no key. */
    tickets?: boolean;
  }
  interface FastifyRequest {
    /** The hash of the ticket that the request was authenticated with. Only the route uses it up. */
    ticketHash: Buffer | null;
  }
}

const LOOKUPS = { concurrency: 2, maxBatch: 200 };

/** Finds the key or the member that made the ticket of a request. */
export class TicketKeys {
  private readonly findByPrefix: (prefix: string) => Promise<SecretRow[]>;
  private readonly findSession: (hash: Buffer) => Promise<SessionRow | undefined>;
  private readonly findMemberSession: (hash: Buffer) => Promise<MemberSessionRow | undefined>;

  constructor(private readonly sql: Sql) {
    this.findSession = inBatches(async (hashes: readonly Buffer[]) => findSessions(sql, hashes), LOOKUPS);
    this.findMemberSession = inBatches(
      async (hashes: readonly Buffer[]) => findMemberSessions(sql, hashes),
      LOOKUPS,
    );
    this.findByPrefix = inBatches(async (prefixes: readonly string[]) => {
      const rows = await findSecrets(sql, prefixes);
      return prefixes.map((prefix) => rows.filter(({ secret_prefix }) => secret_prefix === prefix));
    }, LOOKUPS);
  }

  /** A function that finds the holder as it is now. Throws ApiError for a ticket that is unknown, used or expired. */
  async holderOf(hash: Buffer, at: Instant): Promise<(at: Instant) => Promise<Holder | undefined>> {
    const { rows } = await this.sql.query<{
      key_id: string | null;
      secret_prefix: string | null;
      session_hash: Buffer | null;
    }>(
      'select key_id, secret_prefix, session_hash from terminal_tickets where hash = $1 and expires_at > $2',
      [hash, at],
    );
    const [ticket] = rows;
    if (!ticket) throw invalidTicket();
    const { key_id: key, secret_prefix: prefix, session_hash: session } = ticket;
    if (session && key === null)
      return async (now) => ifStillOpen(await this.findMemberSession(session), now);
    if (session) return async (now) => ifOpen(await this.findSession(session), now);
    return async () =>
      prefix === null ? undefined : (await this.findByPrefix(prefix)).find(({ id }) => id === key);
  }
}

/** The hash of the ticket of a request, on a route that accepts tickets. */
export function ticketHashOf({ headers, routeOptions }: FastifyRequest): Buffer | undefined {
  if (routeOptions.config.tickets !== true) return undefined;
  const protocols = headers['sec-websocket-protocol']?.split(',') ?? [];
  const ticket = protocols.find((name) => name.trim().startsWith(TICKET_PROTOCOL));
  return ticket === undefined ? undefined : hashOf(ticket.trim().slice(TICKET_PROTOCOL.length));
}

export function invalidTicket(): ApiError {
  return new ApiError('invalid_ticket', undefined, null, { headers: { 'www-authenticate': 'Bearer' } });
}
