import type { FastifyRequest } from 'fastify';
import type { Sql } from '../db/pool.js';
import { ApiError } from '../http/errors.js';
import { TICKET_PROTOCOL } from '../http/upgrade.js';
import type { Instant } from '../lib/instant.js';
import { inBatches } from '../fairness/batches.js';
import { findSecrets, type SecretRow } from './key-queries.js';
import { hashOf } from './key-secret.js';
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

/** Finds the key that made the ticket of a request. */
export class TicketKeys {
  private readonly findByPrefix: (prefix: string) => Promise<SecretRow[]>;
  private readonly findSession: (hash: Buffer) => Promise<SessionRow | undefined>;

  constructor(private readonly sql: Sql) {
    this.findSession = inBatches(async (hashes: readonly Buffer[]) => findSessions(sql, hashes), LOOKUPS);
    this.findByPrefix = inBatches(async (prefixes: readonly string[]) => {
      const rows = await findSecrets(sql, prefixes);
      return prefixes.map((prefix) => rows.filter(({ secret_prefix }) => secret_prefix === prefix));
    }, LOOKUPS);
  }

  /** A function that finds the key as it is now. Throws ApiError for a ticket that is unknown, used or expired. */
  async keyOf(hash: Buffer, at: Instant): Promise<(at: Instant) => Promise<SecretRow | undefined>> {
    const { rows } = await this.sql.query<{
      key_id: string;
      secret_prefix: string;
      session_hash: Buffer | null;
    }>(
      'select key_id, secret_prefix, session_hash from terminal_tickets where hash = $1 and expires_at > $2',
      [hash, at],
    );
    const [ticket] = rows;
    if (!ticket) throw invalidTicket();
    const { session_hash: session } = ticket;
    if (session) return async (now) => ifOpen(await this.findSession(session), now);
    return async () => (await this.findByPrefix(ticket.secret_prefix)).find(({ id }) => id === ticket.key_id);
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
