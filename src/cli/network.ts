import { Command } from 'commander';
import type { Config } from '../config/options.js';
import type { Pool } from '../db/pool.js';
import { describeSource, keySourceOf } from '../secrets/key-file.js';
import type { Keyring } from '../secrets/keyring.js';
import { rotateNetworkAuthority, showNetworkAuthority } from '../secrets/network-authority.js';
import { checkKeys, openKnownKeyring } from '../secrets/secrets.js';
import { databaseCommand, print, withDatabase, type CommonOptions } from './command.js';
import { withConfig } from './config-options.js';

type AuthorityOptions = CommonOptions & Pick<Config, 'secretKeys' | 'secretKeysFile'>;

export function networkCommand(): Command {
  return new Command('network')
    .description('the gateway between sandboxes and the network')
    .addCommand(
      new Command('authority')
        .description('the authority that signs certificates for the interception of TLS')
        .addCommand(showCommand())
        .addCommand(rotateCommand()),
    );
}

function authorityCommand(name: string): Command {
  return withConfig(databaseCommand(name), ['secretKeys', 'secretKeysFile']);
}

function showCommand(): Command {
  return authorityCommand('show')
    .description('print the certificate of the authority as PEM; the first use makes it')
    .action(async (options: AuthorityOptions) => {
      const certificate = await withKeyring(options, 'network authority show', showNetworkAuthority);
      print(options, { certificate }, certificate.trimEnd());
    });
}

function rotateCommand(): Command {
  return authorityCommand('rotate')
    .description(
      'make another authority, and print its certificate; services use it from their next start, and sandboxes trust it from theirs',
    )
    .action(async (options: AuthorityOptions) => {
      const certificate = await withKeyring(options, 'network authority rotate', rotateNetworkAuthority);
      print(options, { certificate }, certificate.trimEnd());
    });
}

async function withKeyring<T>(
  options: AuthorityOptions,
  command: string,
  work: (pool: Pool, keyring: () => Keyring) => Promise<T>,
): Promise<T> {
  const source = keySourceOf(options);
  return withDatabase(options, command, async (pool) => {
    const keyring = await openKnownKeyring(pool, source);
    // A key that no service has could be opened by none.
    await checkKeys(pool, keyring(), describeSource(source));
    return work(pool, keyring);
  });
}
