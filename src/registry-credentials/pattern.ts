import { ApiError } from '../http/errors.js';
import { parseImageReference } from '../spec/image-reference.js';

/** A registry, and the beginning of its repositories by whole parts. Empty: all of them. */
interface Pattern {
  registry: string;
  path: string;
}

const DOCKER_HUB = 'docker.io';

/** Its stored form: `ghcr.io` or `ghcr.io/acme`. Throws an ApiError that names the field. */
export function checkPattern(text: string): string {
  const { registry, path } = parsePattern(text) ?? refuse();
  return path === '' ? registry : `${registry}/${path}`;
}

/** The patterns in their stored form that match an image, the longest first. */
export function patternsOf(image: string): string[] {
  const reference = parseImageReference(image);
  if (!reference) return [];
  const parts = [reference.registry, ...reference.repository.split('/')];
  return parts.map((_, index) => parts.slice(0, parts.length - index).join('/'));
}

/** The registry and the repository that a pattern in its stored form begins with. Undefined: no repository. */
export function placeOf(pattern: string): { registry: string; repository: string | undefined } {
  const slash = pattern.indexOf('/');
  if (slash === -1) return { registry: pattern, repository: undefined };
  return { registry: pattern.slice(0, slash), repository: pattern.slice(slash + 1) };
}

function parsePattern(text: string): Pattern | undefined {
  const [host = '', ...parts] = text.split('/');
  // Without a host, `acme` would be a user of Docker Hub, where the caller may have meant a registry.
  if (!/[.:]/.test(host) && host !== 'localhost') return undefined;
  const reference = parseImageReference([host, ...parts, 'any'].join('/'));
  if (!reference || !('tag' in reference.version)) return undefined;
  const { registry, repository } = reference;
  // Docker Hub has its official images in `library`, which a pattern of the whole registry does not name.
  if (registry === DOCKER_HUB && parts.length === 0) return { registry, path: '' };
  return { registry, path: repository.split('/').slice(0, -1).join('/') };
}

function refuse(): never {
  throw new ApiError(
    'invalid_request',
    'pattern must be a registry, or a registry and the beginning of repositories, without a tag: such as ghcr.io, ghcr.io/acme or docker.io/acme/app',
    { field: 'pattern' },
  );
}
