import { DIGEST } from '../spec/image-reference.js';
import { MAX_DOCUMENT_BYTES } from './limits.js';
import { MANIFEST_TYPES, readManifest, type Manifest } from './manifest.js';
import { PullError } from './pull-error.js';
import { readAll, type RegistrySession } from './registry-session.js';
import { sha256Digest } from './sha256-digest.js';

export async function requestDigest(session: RegistrySession, version: string): Promise<string> {
  const digest = (await requestHead(session, version)) ?? sha256Digest(await requestBody(session, version));
  if (DIGEST.test(version) && digest !== version)
    throw new PullError('mismatch', `${version} leads to ${digest}`);
  return digest;
}

/** Docker Hub counts no HEAD as a pull. Undefined: the registry does not answer it properly. */
async function requestHead(session: RegistrySession, version: string): Promise<string | undefined> {
  try {
    const { headers, body } = await session.request(`manifests/${version}`, 'HEAD', MANIFEST_TYPES);
    await readAll(body, 0);
    const digest = headers['docker-content-digest'];
    return typeof digest === 'string' && DIGEST.test(digest) ? digest : undefined;
  } catch (error) {
    if (error instanceof PullError && (error.failure === 'not_found' || error.failure === 'broken'))
      return undefined;
    throw error;
  }
}

export async function requestPlatformManifest(
  session: RegistrySession,
  digest: string,
  architecture: string,
): Promise<{ manifest: Manifest; digest: string }> {
  const found = readManifest(await requestVerified(session, digest), architecture);
  if ('config' in found) return { manifest: found, digest };
  const manifest = readManifest(await requestVerified(session, found.digest), architecture);
  if ('config' in manifest) return { manifest, digest: found.digest };
  throw new PullError('unsupported', 'an index leads to another index');
}

async function requestVerified(session: RegistrySession, digest: string): Promise<Buffer> {
  const bytes = await requestBody(session, digest);
  if (sha256Digest(bytes) !== digest) throw new PullError('mismatch', `the manifest is not ${digest}`);
  return bytes;
}

async function requestBody(session: RegistrySession, version: string): Promise<Buffer> {
  const { body } = await session.request(`manifests/${version}`, 'GET', MANIFEST_TYPES);
  return readAll(body, MAX_DOCUMENT_BYTES);
}
