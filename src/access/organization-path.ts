import type { IncomingMessage } from 'node:http';
import { prefixOf, type SplitPath } from '../http/path-prefix.js';

const PREFIX = '/v1/orgs/';
const ORGANIZATION = /^\/v1\/orgs\/([^/?]+)(.*)$/s;

/**
 * Splits `/v1/orgs/{slug}/sandboxes` into the choice of an organization and `/v1/sandboxes`. The official clients
 * append `/v1/sandboxes` to their address, so `/v1/orgs/{slug}/v1/sandboxes` is the same. `/v1/orgs/{slug}` is
 * `/v1/me/org`.
 */
export function splitOrganization(url: string): SplitPath | undefined {
  if (!url.startsWith(PREFIX)) return undefined;
  const [, slug, rest = ''] = ORGANIZATION.exec(url) ?? [];
  if (slug === undefined) return undefined;
  return { prefix: PREFIX + slug, url: pathIn(rest) };
}

function pathIn(rest: string): string {
  if (!rest.startsWith('/')) return `/v1/me/org${rest}`;
  return rest.startsWith('/v1/') ? rest : `/v1${rest}`;
}

/** The slug of the organization that the path of a request names. Slugs need no percent encoding. */
export function organizationOf(request: IncomingMessage): string | undefined {
  const prefix = prefixOf(request);
  return prefix === '' ? undefined : prefix.slice(PREFIX.length);
}
