import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import type { FastifyBaseLogger, FastifyInstance, RawServerDefault } from 'fastify';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { TSchema } from 'typebox';
import { CATALOGUE, type ErrorName } from './errors.js';
import { ErrorResponse } from './schema.js';

export type App = FastifyInstance<
  RawServerDefault,
  IncomingMessage,
  ServerResponse,
  FastifyBaseLogger,
  TypeBoxTypeProvider
>;

const OF_EVERY_OPERATION = [
  'invalid_request',
  'invalid_api_key',
  'insufficient_scope',
  'address_not_allowed',
  'rate_limited',
  'headers_too_large',
  'internal_error',
  'not_ready',
  'storage_full',
] as const;

/**
 * The answers of an authenticated operation: `ok`, its own errors, and the errors of every operation. A route below
 * `/v1` also names the scope that it requires; without one the service does not start.
 */
export function answers<T extends TSchema>(ok: T, ...errors: ErrorName[]): { 200: T } {
  return { 200: ok, ...refusals(...errors) };
}

function refusals(...errors: ErrorName[]): Record<number, TSchema> {
  const all: ErrorName[] = [...OF_EVERY_OPERATION, ...errors];
  const byStatus = new Map<number, string[]>();
  for (const name of all) {
    const entry: { status: number; code?: string } = CATALOGUE[name];
    byStatus.set(entry.status, [...new Set([...(byStatus.get(entry.status) ?? []), entry.code ?? name])]);
  }
  return Object.fromEntries(
    [...byStatus].map(([status, codes]) => [
      status,
      { ...ErrorResponse, description: codes.map((code) => `\`${code}\``).join(', ') },
    ]),
  );
}

const OF_EVERY_BODY = ['invalid_json', 'payload_too_large', 'unsupported_media_type'] as const;

/** The same for an answer with an `etag`, which a caller may have already. */
export function answersTagged<T extends TSchema>(ok: T, ...errors: ErrorName[]) {
  return { ...answers(ok, ...errors), 304: NOT_MODIFIED };
}

const NOT_MODIFIED = {
  type: 'null',
  description: 'The answer is the one whose `etag` the request named in `if-none-match`.',
} as const;

/** The same for an operation whose request may have a body. */
export function answersToBody<T extends TSchema>(ok: T, ...errors: ErrorName[]) {
  return answers(ok, ...OF_EVERY_BODY, ...errors);
}

/** The same for an operation that takes an `Idempotency-Key`. */
export function answersToWrite<T extends TSchema>(ok: T, ...errors: ErrorName[]) {
  return answersToBody(ok, 'idempotency_conflict', ...errors);
}
