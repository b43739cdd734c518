import type { Caller } from '../access/caller.js';
import { recordEvent } from '../audit/events/record.js';
import type { Context } from '../context.js';
import { inTransaction } from '../db/transaction.js';
import { ApiError } from '../http/errors.js';
import { limitTime } from '../lib/time-limit.js';
import { MANIFEST_TYPES } from '../registry/manifest.js';
import { PullError } from '../registry/pull-error.js';
import { RegistrySession, type RegistryAuth } from '../registry/registry-session.js';
import { parseImageReference } from '../spec/image-reference.js';
import { openPassword } from './password.js';
import { patternsOf, placeOf } from './pattern.js';
import { getCredential, lockCredential } from './queries.js';
import type { RegistryCredentialTestResponse, TestRegistryCredentialRequest } from './schema.js';

/** A registry may be slow, and the request waits for it. */
const LONGEST_TEST_MS = 20_000;

/** Logs in at the registry with the stored credential, and asks for the manifest of an image if one is named. */
export async function testCredential(
  ctx: Context,
  { orgId, actor }: Caller,
  id: string,
  { reference }: TestRegistryCredentialRequest,
): Promise<RegistryCredentialTestResponse> {
  const row = await getCredential(ctx.pool, orgId, id);
  if (!row) throw new ApiError('sandbox_not_found');
  const { pattern, username } = row;
  const image = reference === undefined ? undefined : imageOf(reference, pattern);
  const password = row.sealed && openPassword(ctx.keyring(), row, row.sealed);
  if (password == null) {
    return { accepted: false, message: 'the password of the credential cannot be read: set it again' };
  }
  const result = await ask(ctx, pattern, image, { username, password });
  await inTransaction(ctx.pool, async (tx) => {
    // A credential that was deleted meanwhile has no more events.
    if (!(await lockCredential(tx, orgId, id))) throw new ApiError('sandbox_not_found');
    await recordEvent(tx, {
      orgId,
      type: 'registry_credential_tested',
      actor,
      resourceId: id,
      at: ctx.now(),
      payload: { credential_id: id, pattern, reference: reference ?? null, accepted: result.accepted },
    });
  });
  return result;
}

async function ask(
  ctx: Context,
  pattern: string,
  image: ReturnType<typeof parseImageReference>,
  auth: RegistryAuth,
): Promise<RegistryCredentialTestResponse> {
  const { registry, repository } = placeOf(pattern);
  const { signal, release } = limitTime(LONGEST_TEST_MS, ctx.stopping);
  const session = new RegistrySession(
    ctx.settings.registryReach,
    image ?? { registry, repository },
    auth,
    signal,
  );
  try {
    if (!image) {
      await session.logIn();
      return { accepted: true, message: `${registry} accepted the login` };
    }
    const version = 'digest' in image.version ? image.version.digest : image.version.tag;
    const { body } = await session.request(`manifests/${version}`, 'HEAD', MANIFEST_TYPES);
    for await (const _ of body) break;
    return { accepted: true, message: `${registry} has the image, and lets it be pulled` };
  } catch (error) {
    if (error instanceof PullError) return { accepted: false, message: error.words };
    if (ctx.stopping.aborted) throw new ApiError('not_ready', 'the service stops: try again', null);
    if (signal.aborted) {
      return { accepted: false, message: `no answer within ${LONGEST_TEST_MS / 1_000} s` };
    }
    throw error;
  } finally {
    release();
  }
}

function imageOf(reference: string, pattern: string) {
  const image = parseImageReference(reference);
  if (!image) {
    throw new ApiError(
      'invalid_request',
      'reference is not an OCI image reference, such as ghcr.io/acme/app:1',
      {
        field: 'reference',
      },
    );
  }
  if (!patternsOf(reference).includes(pattern)) {
    throw new ApiError('invalid_request', `reference must be an image that the pattern ${pattern} matches`, {
      field: 'reference',
    });
  }
  return image;
}
