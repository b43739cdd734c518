import type { FastifyRequest } from 'fastify';
import type { Sql } from '../db/pool.js';
import { ApiError } from '../http/errors.js';
import { TICKET_PROTOCOL } from '../http/upgrade.js';
import type { Instant } from '../lib/instant.js';
import { inBatches } from '../lib/batches.js';
import { findSecrets, type SecretRow } from './key-queries.js';
import { hashOf } from './key-secret.js';

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

  constructor(private readonly sql: Sql) {
    this.findByPrefix = inBatches(async (prefixes: readonly string[]) => {
      const rows = await findSecrets(sql, prefixes);
      return prefixes.map((prefix) => rows.filter(({ secret_prefix }) => secret_prefix === prefix));
    }, LOOKUPS);
  }

  /** A function that finds the key as it is now. Throws ApiError for a ticket that is unknown, used or expired. */
  async keyOf(hash: Buffer, at: Instant): Promise<() => Promise<SecretRow | undefined>> {
    const { rows } = await this.sql.query<{ key_id: string; secret_prefix: string }>(
      'select key_id, secret_prefix from terminal_tickets where hash = $1 and expires_at > $2',
      [hash, at],
    );
    const [ticket] = rows;
    if (!ticket) throw invalidTicket();
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

/** A browser names the page that opens the terminal. Other clients name none. */
export function checkOrigin({ headers }: FastifyRequest, allowed: readonly string[]): void {
  const { origin, host } = headers;
  if (origin === undefined || allowed.includes(origin)) return;
  if (URL.canParse(origin) && new URL(origin).host === host) return;
  throw new ApiError('origin_not_allowed');
}

export function invalidTicket(): ApiError {
  return new ApiError('invalid_ticket', undefined, null, { headers: { 'www-authenticate': 'Bearer' } });
}
