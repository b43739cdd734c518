import type { FastifyRequest } from 'fastify';

/** The user agent of the official SDKs, and of the CLI, which is made with one of them. */
const SDK = /^microsandbox-sdk\//;

/** Official SDKs cannot decode some answers that other clients get. */
export function isOfSdk({ headers }: Pick<FastifyRequest, 'headers'>): boolean {
  return SDK.test(headers['user-agent'] ?? '');
}
