import { Command } from 'commander';
import { operator } from '../audit/events/actor.js';
import type { EventActor } from '../audit/events/schema.js';
import { setSecretKey } from '../db/instance-queries.js';
import type { Pool } from '../db/pool.js';
import { inTransaction } from '../db/transaction.js';
import { ExplainedError } from '../lib/explained-error.js';
import { sleep } from '../lib/sleep.js';
import { addKey, describeSource, dropOldKeys, keySourceOf, openKeyring } from '../secrets/key-file.js';
import type { Keyring } from '../secrets/keyring.js';
import { forgetNetworkAuthority, resealNetworkAuthority } from '../secrets/network-authority.js';
import { checkKeys, forgetAll, openKnownKeyring, resealAll } from '../secrets/secrets.js';
import { forgetCredentials, resealCredentials } from '../registry-credentials/reseal.js';
import { forgetWebhookSecrets, resealWebhooks } from '../webhooks/reseal.js';
import type { Config } from '../config/options.js';
import { databaseCommand, print, withDatabase, type CommonOptions } from './command.js';
import { withConfig } from './config-options.js';

const LONGEST_WRITE_MS = 2_000;

type SecretsOptions = CommonOptions & Pick<Config, 'secretKeys' | 'secretKeysFile'>;

export function secretsCommand(): Command {
  return new Command('secrets')
    .description('the keys that seal secrets of sandboxes, registries and webhooks')
    .addCommand(rotateCommand())
    .addCommand(forgetCommand());
}

function secretKeysCommand(name: string): Command {
  return withConfig(databaseCommand(name), ['secretKeys', 'secretKeysFile']);
}

function rotateCommand(): Command {
  return secretKeysCommand('rotate')
    .description(
      'create a key and seal all secrets again under it; with keys in the option secret-keys, seal them under the first',
    )
    .option('--drop-old', 'then delete the older keys, which seal nothing any more')
    .action(async (options: SecretsOptions & { dropOld?: true }) => {
      const source = keySourceOf(options);
      if ('keys' in source && options.dropOld) {
        throw new ExplainedError('the option secret-keys has the keys: remove the older keys there');
      }
      const actor = operator('secrets rotate');
      const resealed = await withDatabase(options, 'secrets rotate', async (pool) => {
        // Secrets under a key beside the wrong file could be opened by no service.
        await checkKeys(pool, (await openKnownKeyring(pool, source))(), describeSource(source));
        if ('file' in source) addKey(source.file);
        const keyring = openKeyring(source);
        await setSecretKey(pool, keyring().currentId);
        const count = await resealEverything(pool, keyring, actor);
        if (!('file' in source) || !options.dropOld) return count;
        // Requests that read the older key are answered by then.
        await sleep(LONGEST_WRITE_MS);
        const late = await resealEverything(pool, keyring, actor);
        dropOldKeys(source.file);
        return count + late;
      });
      const key = openKeyring(source)().currentId;
      print(options, { key, resealed }, `${resealed} secrets are sealed again, under the key ${key}`);
    });
}

async function resealEverything(pool: Pool, keyring: () => Keyring, actor: EventActor): Promise<number> {
  const authorities = await inTransaction(pool, (tx) => resealNetworkAuthority(tx, keyring()));
  const secrets = await resealAll(pool, keyring, actor);
  const credentials = await resealCredentials(pool, keyring, actor);
  return authorities + secrets + credentials + (await resealWebhooks(pool, keyring, actor));
}

function forgetCommand(): Command {
  return secretKeysCommand('forget')
    .description(
      'delete every sealed secret, when the keys are lost; sandboxes that need one will not start, webhooks are disabled',
    )
    .action(async (options: SecretsOptions) => {
      const actor = operator('secrets forget');
      const { key, deleted } = await withDatabase(options, 'secrets forget', async (pool) => {
        const keyring = openKeyring(keySourceOf(options))();
        const webhooks = await forgetWebhookSecrets(pool, actor);
        const credentials = await forgetCredentials(pool, actor);
        const authorities = (await forgetNetworkAuthority(pool)) ? 1 : 0;
        const deleted = authorities + webhooks + credentials + (await forgetAll(pool, keyring, actor));
        return { key: keyring.currentId, deleted };
      });
      print(
        options,
        { key, deleted },
        `${deleted} secrets are deleted; new ones are sealed under the key ${key}`,
      );
    });
}
