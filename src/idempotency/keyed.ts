import type { FastifyReply, FastifyRequest } from 'fastify';
import { createHash } from 'node:crypto';
import { isNarrowed, type Access } from '../access/access.js';
import { callerOf, type Caller } from '../access/caller.js';
import { contextOf } from '../access/request-context.js';
import { badParameter } from '../http/errors.js';
import type { IgnoredField } from '../http/ignored-fields.js';
import { stringifyExact } from '../lib/exact-json.js';
import type { Keyring } from '../secrets/keyring.js';

/** The headers that say what is asked for. */
const HEADERS = ['x-msb-file-path', 'x-msb-file-recursive'];
const KEY = /^[ -~]{1,255}$/;

/** What `Idempotency-Key` makes of a write. */
export interface Keyed {
  /** What it is stored under. */
  readonly key: string;
  /** Each tells the request from others under the same key. The first is kept; an older key of ours made the others. */
  readonly fingerprints: readonly [Buffer, ...Buffer[]];
  /** The warnings of its answer. They are kept with the answer, so a repeated request gets the same ones. */
  readonly warnings: readonly IgnoredField[];
  /** The first answer is only that of the admission: the caller waits for what becomes of it. */
  readonly waits: boolean;
  /** The answer that was found is the last word: there is nothing to wait for. */
  settled: boolean;
  /** To be called when the answer is that of an earlier request. */
  replayed(): void;
}

/** The caller of a request that writes. */
export interface Writer extends Caller {
  /** Present when the request has an `Idempotency-Key`. */
  keyed?: Keyed;
}

/**
 * The caller of a request that writes, with what its `Idempotency-Key` asks for. A key that is none is refused. `body`:
 * what stands for the body, where that is not held in memory.
 */
export function writerOf(request: FastifyRequest, reply: FastifyReply, body: unknown = request.body): Writer {
  const caller = callerOf(request);
  const key = request.headers['idempotency-key'];
  if (typeof key !== 'string') return caller;
  if (!KEY.test(key)) {
    throw badParameter('Idempotency-Key', 'Idempotency-Key must be 1 to 255 printable ASCII characters');
  }
  const keyed: Keyed = {
    warnings: request.warnings ?? [],
    key: namedBy(caller.access, key),
    fingerprints: fingerprintsOf(contextOf(request).keyring(), request, body),
    waits: (request.query as { wait_for?: unknown }).wait_for !== undefined,
    settled: false,
    replayed: () => {
      void reply.header('idempotency-replayed', 'true');
      // The answer has its own.
      if (keyed.settled) request.warnings = [];
    },
  };
  return { ...caller, keyed };
}

/**
 * API keys that are narrowed to labels have names of their own, those with the same labels together: they neither learn nor take
 * the names of others, and are not given their answers. None of theirs can be that of another: no text of a client has a line feed.
 */
function namedBy(access: Access, key: string): string {
  if (!isNarrowed(access)) return key;
  // Hashed, as they may be longer than an index takes.
  return `${createHash('sha256').update(JSON.stringify(access.labels)).digest('base64url')}\n${key}`;
}

/** Under keys that are not in the database, so that who reads it cannot try out what a body may have been. */
function fingerprintsOf(
  keyring: Keyring,
  { method, url, headers }: FastifyRequest,
  body: unknown,
): Keyed['fingerprints'] {
  const asked = HEADERS.map((name) => headers[name] ?? null);
  return keyring.macs('idempotency', stringifyExact([method, url, asked, body ?? null]));
}
