import { createHmac, randomBytes } from 'node:crypto';
import { ExplainedError } from '../lib/explained-error.js';
import type { Keyring, Sealed } from '../secrets/keyring.js';
import type { WebhookRow } from './queries.js';

/** The format of https://www.standardwebhooks.com. */
const SCHEME = 'whsec_';
const SECRET_BYTES = 32;

type Owner = Pick<WebhookRow, 'org_id' | 'id'>;

export function makeSecret(): string {
  return SCHEME + randomBytes(SECRET_BYTES).toString('base64');
}

/** Binds a sealed secret to its webhook: it cannot be opened in another row. */
function associatedData({ org_id, id }: Owner): string {
  return `${org_id}/webhook/${id}`;
}

export function sealSecret(keyring: Keyring, owner: Owner, secret: string): Sealed {
  return keyring.seal(secret, associatedData(owner));
}

/** The header `webhook-signature`: one signature for each secret. A receiver accepts any of them. */
export function signatures(
  secrets: readonly string[],
  { id, timestamp, body }: { id: string; timestamp: number; body: string },
): string {
  return secrets
    .map((secret) => {
      const mac = createHmac('sha256', Buffer.from(secret.slice(SCHEME.length), 'base64'));
      return `v1,${mac.update(`${id}.${timestamp}.${body}`).digest('base64')}`;
    })
    .join(' ');
}

/**
 * The secrets that sign at this instant, newest first. Replaced secrets that cannot be opened are left out. Throws
 * ExplainedError if the newest secret cannot be opened.
 */
export function signingSecrets(keyring: Keyring, webhook: WebhookRow, at: string): string[] {
  const { sealed } = webhook;
  if (!sealed) throw new ExplainedError('the secret of the webhook is lost: rotate it');
  const newest = openSecret(keyring, webhook, sealed);
  if (newest === undefined) {
    throw new ExplainedError(
      `the secret of the webhook cannot be read: it was sealed under the key ${sealed.keyId}, which the service must be given, or was tampered with; a rotation gives it another`,
    );
  }
  const older = overlapping(webhook, at).map((each) => openSecret(keyring, webhook, each));
  return [newest, ...older.filter((each) => each !== undefined)];
}

function overlapping({ old_sealed, old_until }: WebhookRow, at: string): Sealed[] {
  return old_until !== null && old_until > at ? old_sealed : [];
}

/** The secrets that a rotation replaces, newest first. Secrets that cannot be opened are left out. */
export function replacedSecrets(keyring: Keyring, webhook: WebhookRow, at: string): Sealed[] {
  const { sealed } = webhook;
  return [...(sealed ? [sealed] : []), ...overlapping(webhook, at)].filter(
    (each) => openSecret(keyring, webhook, each) !== undefined,
  );
}

export function openSecret(keyring: Keyring, owner: Owner, sealed: Sealed): string | undefined {
  return keyring.open(sealed, associatedData(owner));
}
