import type { FastifyRequest } from 'fastify';

/**
 * The media type that `Accept` prefers, or the first type that it does not refuse. RFC 9110, section 12.5.1, allows that
 * instead of status 406. Every type is offered with the charset of the responses: some clients name it in `Accept`.
 */
export function preferredType<const T extends string>(
  request: FastifyRequest,
  types: readonly [T, ...T[]],
): T {
  const { headers } = request.raw;
  if (headers.accept !== undefined) headers.accept += ', */*;q=0.001';
  const offered = types.map((type) => `${type}; charset=utf-8`);
  const preferred = request.accepts().type(offered);
  return types[offered.findIndex((type) => type === preferred)] ?? types[0];
}
