import type { FastifyRequest } from 'fastify';

/** A parameter of a media type, other than its weight. */
const PARAMETER = /;(?!\s*q\s*=)[^;,]*/gi;

/**
 * The media type that `Accept` prefers, or the first type that it does not refuse. RFC 9110, section 12.5.1, allows
 * that instead of status 406. Parameters such as a charset do not count.
 */
export function preferredType<const T extends string>(
  request: FastifyRequest,
  types: readonly [T, ...T[]],
): T {
  const { headers } = request.raw;
  if (headers.accept !== undefined) headers.accept = `${headers.accept.replace(PARAMETER, '')}, */*;q=0.001`;
  const preferred = request.accepts().type([...types]);
  return types.find((type) => type === preferred) ?? types[0];
}
