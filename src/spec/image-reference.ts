/** A reference in its normal form: `python` is the image `docker.io/library/python:latest`. */
export interface ImageReference {
  registry: string;
  repository: string;
  version: { tag: string } | { digest: string };
}

const DOMAIN_LABEL = '[a-z0-9](?:[a-z0-9-]*[a-z0-9])?';
const REGISTRY = new RegExp(`^${DOMAIN_LABEL}(?:\\.${DOMAIN_LABEL})*(?::\\d{1,5})?$`);
const PATH_PART = /^[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*$/;
const TAG = /^\w[\w.-]{0,127}$/;
export const DIGEST = /^sha256:[0-9a-f]{64}$/;

const LONGEST = 512;
const LONGEST_NAME = 255;
const DOCKER_HUB = 'docker.io';

/** Reads `[registry[:port]/]path[:tag][@digest]` as Docker does. Undefined for any other text. */
export function parseImageReference(text: string): ImageReference | undefined {
  if (text.length > LONGEST) return undefined;
  const [named = '', digest, ...more] = text.split('@');
  if (more.length > 0 || (digest !== undefined && !DIGEST.test(digest))) return undefined;
  const colon = named.indexOf(':', named.lastIndexOf('/') + 1);
  const name = colon === -1 ? named : named.slice(0, colon);
  const tag = colon === -1 ? 'latest' : named.slice(colon + 1);
  if (!TAG.test(tag)) return undefined;
  const { registry, repository } = splitName(name);
  if (!REGISTRY.test(registry) || !repository.split('/').every((part) => PATH_PART.test(part)))
    return undefined;
  if (registry.length + 1 + repository.length > LONGEST_NAME) return undefined;
  return { registry, repository, version: digest === undefined ? { tag } : { digest } };
}

function splitName(name: string): { registry: string; repository: string } {
  const [first = '', ...rest] = name.split('/');
  const isHost = rest.length > 0 && (/[.:A-Z]/.test(first) || first === 'localhost');
  const host = isHost ? first.toLowerCase() : DOCKER_HUB;
  const registry = host === `index.${DOCKER_HUB}` ? DOCKER_HUB : host;
  const path = isHost ? rest.join('/') : name;
  return { registry, repository: registry === DOCKER_HUB && !path.includes('/') ? `library/${path}` : path };
}

export function formatImageReference({ registry, repository, version }: ImageReference): string {
  return `${registry}/${repository}${'digest' in version ? `@${version.digest}` : `:${version.tag}`}`;
}

/** The form without the parts that Docker leaves out: `python:latest`. */
export function familiarForm(reference: ImageReference): string {
  return formatImageReference(reference).replace(/^docker\.io\/(?:library\/)?/, '');
}
