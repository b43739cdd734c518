import type { FastifyReply, FastifyRequest } from 'fastify';
import { createHash } from 'node:crypto';
import { isNarrowed, type Access } from '../access/access.js';
import { callerOf, type Caller } from '../access/caller.js';
import { contextOf } from '../access/request-context.js';
import { badParameter } from '../http/errors.js';
import type { IgnoredField } from '../http/ignored-fields.js';
import { stringifyExact } from '../lib/exact-json.js';
import type { Keyring } from '../secrets/keyring.js';

/** The headers that are a part of the request's fingerprint. */
const HEADERS = ['x-msb-file-path', 'x-msb-file-recursive'];
const KEY = /^[ -~]{1,255}$/;

export interface Keyed {
  readonly key: string;
  /** MACs of the request. The first one is stored; the others use older keys of the service. */
  readonly fingerprints: readonly [Buffer, ...Buffer[]];
  /** The warnings of the response, which are stored with it. */
  readonly warnings: readonly IgnoredField[];
  /** With `wait_for` the response is final only after the wait. */
  readonly waits: boolean;
  /** Whether the stored response is final. */
  settled: boolean;
  /** The answer is that of an earlier request. */
  isReplay?: boolean;
  replayed(): void;
}

export interface Writer extends Caller {
  keyed?: Keyed;
}

/** `body`: the body, or its digest if the body is not held in memory. Refuses a malformed `Idempotency-Key`. */
export function writerOf(request: FastifyRequest, reply: FastifyReply, body: unknown = request.body): Writer {
  const caller = callerOf(request);
  const key = request.headers['idempotency-key'];
  if (typeof key !== 'string') return caller;
  if (!KEY.test(key)) {
    throw badParameter('Idempotency-Key', 'Idempotency-Key must be 1 to 255 printable ASCII characters');
  }
  const keyed: Keyed = {
    warnings: request.warnings ?? [],
    key: namespaced(caller.access, key),
    fingerprints: fingerprintsOf(contextOf(request).keyring(), request, body),
    waits: (request.query as { wait_for?: unknown }).wait_for !== undefined,
    settled: false,
    replayed: () => {
      keyed.isReplay = true;
      void reply.header('idempotency-replayed', 'true');
      // A stored response contains its warnings.
      if (keyed.settled) request.warnings = [];
    },
  };
  return { ...caller, keyed };
}

/**
 * Keys that are narrowed to the same labels share a namespace, so that they cannot probe or replay idempotency keys of
 * others. The line feed makes names unique: no client can send one.
 */
function namespaced(access: Access, key: string): string {
  if (!isNarrowed(access)) return key;
  // Hashed, because the labels may exceed the size of an index entry.
  return `${createHash('sha256').update(JSON.stringify(access.labels)).digest('base64url')}\n${key}`;
}

/** The MAC keys are not in the database, so that its readers cannot guess bodies. */
function fingerprintsOf(
  keyring: Keyring,
  { method, url, headers }: FastifyRequest,
  body: unknown,
): Keyed['fingerprints'] {
  const asked = HEADERS.map((name) => headers[name] ?? null);
  return keyring.macs('idempotency', stringifyExact([method, url, asked, body ?? null]));
}
