import { Command } from 'commander';
import { validate as isUuid } from 'uuid';
import { operator } from '../events/actor.js';
import { createKey } from '../keys/create.js';
import { listKeys } from '../keys/queries.js';
import { revokeKey } from '../keys/revoke.js';
import { shortInstant } from '../lib/instant.js';
import { databaseCommand, print, withDatabase, type CommonOptions } from './command.js';
import { namedOrg } from './named-org.js';
import { table } from './table.js';
import { ExplainedError } from '../lib/explained.js';

export function keyCommand(): Command {
  return new Command('key')
    .description('API keys: each opens one organization')
    .addCommand(createCommand())
    .addCommand(listCommand())
    .addCommand(revokeCommand());
}

const NAME_LENGTH = 200;

function createCommand(): Command {
  return databaseCommand('create')
    .description('make an API key; it is printed once and stored nowhere')
    .requiredOption('--org <slug>', 'the organization it opens')
    .requiredOption('--name <name>', 'what it is for; shown in the audit trail')
    .action(async (options: CommonOptions & { org: string; name: string }) => {
      if (options.name.trim() === '' || options.name.length > NAME_LENGTH) {
        throw new ExplainedError(`the name of a key must have 1 to ${NAME_LENGTH} characters`);
      }
      const key = await withDatabase(options, 'key create', async (pool) =>
        createKey(pool, await namedOrg(pool, options.org), options.name, operator('key create')),
      );
      print(options, key, `${key.key}\n\nThis is the only time the key is shown. Its id is ${key.id}.`);
    });
}

function listCommand(): Command {
  return databaseCommand('list')
    .description('list API keys, by their first characters')
    .option('--org <slug>', 'only those of this organization')
    .action(async (options: CommonOptions & { org?: string }) => {
      const keys = await withDatabase(options, 'key list', async (pool) =>
        listKeys(pool, options.org === undefined ? undefined : await namedOrg(pool, options.org)),
      );
      const view = keys.map(({ created_at, revoked_at, ...key }) => ({
        ...key,
        created_at: shortInstant(created_at),
        revoked_at: revoked_at && shortInstant(revoked_at),
      }));
      const rows = view.map((key) => [
        ...[key.org_slug, key.name, `${key.prefix}…`, key.id, key.created_at],
        key.revoked_at === null ? 'live' : `revoked ${key.revoked_at}`,
      ]);
      print(options, view, table(['ORG', 'NAME', 'KEY', 'ID', 'CREATED', 'STATE'], rows));
    });
}

function revokeCommand(): Command {
  return databaseCommand('revoke')
    .description('revoke an API key: the next request with it is refused')
    .argument('<id>', 'id of the key, as "sandkeep key list" shows it')
    .action(async (id: string, options: CommonOptions) => {
      if (!isUuid(id)) throw new ExplainedError(`"${id}" is not the id of a key: see "sandkeep key list"`);
      const revoked = await withDatabase(options, 'key revoke', (pool) =>
        revokeKey(pool, id, operator('key revoke')),
      );
      if (!revoked) throw new ExplainedError(`there is no key with the id ${id}: see "sandkeep key list"`);
      const result = { id, revoked_at: shortInstant(revoked) };
      print(options, result, `the key ${id} is revoked since ${result.revoked_at}`);
    });
}
