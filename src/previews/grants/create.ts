import { hashOf } from '../../access/key-secret.js';
import { recordEvent } from '../../audit/events/record.js';
import type { Context } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import type { Writer } from '../../idempotency/keyed.js';
import { inWrite } from '../../idempotency/write.js';
import { addMillis, shortInstant } from '../../lib/instant.js';
import { newId } from '../../lib/uuid.js';
import { getPreviewSettings } from '../../orgs/queries.js';
import { lockSandbox, type SandboxKey } from '../../sandboxes/queries.js';
import { isSamePath, linkOf } from '../pages/link.js';
import { originsOf, presentPreview } from './present.js';
import { countOpen, insertPreview, type NewPreview } from './queries.js';
import { LIFETIME_SECS, MOST_OPEN, type CreatePreviewRequest, type PreviewWithToken } from './schema.js';
import { cookieOf, makeToken } from './token.js';

/** Opens a port of a sandbox, in any status. The stored answer has no token. */
export async function createPreview(
  ctx: Context,
  caller: Writer,
  sandboxKey: SandboxKey,
  request: CreatePreviewRequest,
): Promise<PreviewWithToken> {
  const { orgId, actor, key } = caller;
  if (!key) throw new Error('a preview needs a key');
  const origins = originsOf(ctx);
  const { port, path = '/', ttl_secs = LIFETIME_SECS.default, label = null, host = 'outer' } = request;
  if (!isSamePath(path)) {
    const message =
      'path leads elsewhere: it is a path that begins with one slash, without control characters';
    throw new ApiError('invalid_request', message, { field: 'path' });
  }
  const isPublic = request.public ?? false;
  return inWrite(
    ctx,
    caller,
    async (tx, batch): Promise<PreviewWithToken> => {
      const sandbox = await lockSandbox(tx, orgId, sandboxKey);
      if (!sandbox) throw new ApiError('sandbox_not_found');
      const at = ctx.now();
      if (isPublic && !(await getPreviewSettings(tx, orgId)).public)
        throw new ApiError('public_previews_off');
      const used = await countOpen(tx, orgId, sandbox.id, at);
      if (used >= MOST_OPEN) {
        const message = `the sandbox has ${MOST_OPEN} open previews: revoke one, or wait for its end`;
        throw new ApiError('quota_exceeded', message, { quota: 'open_previews', limit: MOST_OPEN, used });
      }
      const wantedEnd = addMillis(at, ttl_secs * 1_000);
      const keyEnd = caller.access.expiresAt;
      const token = isPublic ? null : makeToken();
      const preview: NewPreview = {
        org_id: orgId,
        id: newId(),
        sandbox_id: sandbox.id,
        port,
        path,
        label,
        host_form: host,
        is_public: isPublic,
        grant_hash: token === null ? null : hashOf(token),
        cookie_hash: token === null ? null : hashOf(cookieOf(token)),
        created_by: actor,
        key_id: key.id,
        created_at: at,
        expires_at: keyEnd !== null && keyEnd < wantedEnd ? keyEnd : wantedEnd,
        revoked_at: null,
        last_used_at: null,
      };
      await insertPreview(tx, preview);
      await recordEvent(batch, {
        orgId,
        type: 'sandbox_preview_created',
        actor,
        resourceId: sandbox.id,
        at,
        payload: {
          preview_id: preview.id,
          sandbox_id: sandbox.id,
          name: sandbox.name,
          port,
          label,
          public: isPublic,
          expires_at: shortInstant(preview.expires_at),
        },
      });
      const shown = presentPreview(preview, origins, at);
      return { ...shown, url: linkOf(shown.origin, path, token), token };
    },
    (shown) => ({ ...shown, url: shown.public ? shown.url : null, token: null }),
  );
}
