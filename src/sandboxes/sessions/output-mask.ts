import type { Context } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import { StartRefusedError } from '../../engine/runtime.js';
import { SecretMask } from '../../secrets/mask.js';
import { openSecrets } from '../../secrets/secrets.js';
import type { EnvEntry } from '../../spec/env-schema.js';

/** Masks the secret variables of a sandbox, and those of one command, in output. */
export async function outputMask(
  { pool, keyring }: Pick<Context, 'pool' | 'keyring'>,
  orgId: string,
  sandboxId: string,
  more: readonly EnvEntry[] = [],
): Promise<SecretMask> {
  try {
    const { env = {} } = await openSecrets(pool, keyring, orgId, sandboxId);
    const given = more.filter(({ secret }) => secret === true).map(({ value }) => value);
    return new SecretMask([...Object.values(env), ...given]);
  } catch (error) {
    // Output without the mask would be worse than none.
    if (error instanceof StartRefusedError)
      throw new ApiError('not_ready', error.message, null, { cause: error });
    throw error;
  }
}
