import { Command } from 'commander';
import { validate as isUuid } from 'uuid';
import type { Access } from '../access/access.js';
import { type KeyRow } from '../access/key-queries.js';
import type { Scope } from '../access/scopes.js';
import { operator } from '../audit/events/actor.js';
import type { Pool } from '../db/pool.js';
import { inTransaction } from '../db/transaction.js';
import { createKey } from '../keys/create.js';
import { presentKey } from '../keys/present.js';
import { findOrgOfKey, listKeys, lockKey } from '../keys/queries.js';
import { readAccess } from '../keys/requested-access.js';
import { revokeKey } from '../keys/revoke.js';
import { rotateLocked } from '../keys/rotate.js';
import { ExplainedError } from '../lib/explained-error.js';
import { now, shortInstant } from '../lib/instant.js';
import { databaseCommand, print, tableCommand, withDatabase, type CommonOptions } from './command.js';
import { explained } from './explained.js';
import { namedOrg } from './named-org.js';
import { keyCidr, keyExpires, keyLabel, keyOverlap, keyScopes } from './options.js';
import { table } from './table.js';

export function keyCommand(): Command {
  return new Command('key')
    .description('API keys: each opens one organization, or a part of it')
    .addCommand(createCommand())
    .addCommand(listCommand())
    .addCommand(rotateCommand())
    .addCommand(revokeCommand());
}

interface CreateOptions extends CommonOptions {
  org: string;
  name: string;
  scopes: Scope[];
  label: Record<string, string>;
  cidr: string[];
  expires?: string;
}

function createCommand(): Command {
  return databaseCommand('create')
    .description('create an API key; it is printed once and stored nowhere')
    .requiredOption('--org <slug>', 'the organization it opens')
    .requiredOption('--name <name>', 'its purpose; shown in the audit trail')
    .addOption(keyScopes())
    .addOption(keyLabel())
    .addOption(keyCidr())
    .addOption(keyExpires())
    .action(async (options: CreateOptions) => {
      const access = accessAsked(options);
      const key = await withDatabase(options, 'key create', async (pool) =>
        createKey(pool, await namedOrg(pool, options.org), options.name, operator('key create'), access),
      );
      print(options, key, `${key.key}\n\nThis is the only time the key is shown. Its id is ${key.id}.`);
    });
}

function accessAsked({ name, scopes, label, cidr, expires }: CreateOptions): Access {
  try {
    const asked = { name, scopes, labels: label, cidrs: cidr, expires_at: expires ?? null };
    return readAccess(asked, now());
  } catch (error) {
    return explained(error);
  }
}

function listCommand(): Command {
  return tableCommand('list')
    .description('list API keys, by their first characters')
    .option('--org <slug>', 'only those of this organization')
    .action(async (options: CommonOptions & { org?: string }) => {
      const keys = await withDatabase(options, 'key list', async (pool) =>
        listKeys(pool, options.org === undefined ? undefined : await namedOrg(pool, options.org)),
      );
      const view = keys.map(({ org_id, org_slug, ...key }) => ({
        org_id,
        org_slug,
        ...presentKey({ org_id, ...key }, now()),
      }));
      const rows = keys.map((key) => [
        key.org_slug,
        key.name,
        `${key.prefix}…`,
        key.id,
        key.scopes.join(' '),
        narrowingOf(key),
        shortInstant(key.created_at),
        key.last_used_at ? shortInstant(key.last_used_at) : 'never',
        stateOf(key),
      ]);
      const headings = ['ORG', 'NAME', 'KEY', 'ID', 'SCOPES', 'ONLY', 'CREATED', 'USED', 'STATE'];
      print(options, view, table(headings, rows, { ...options, optional: ['ONLY', 'CREATED', 'SCOPES'] }));
    });
}

function narrowingOf({ labels, cidrs }: KeyRow): string {
  return [...Object.entries(labels).map(([name, value]) => `${name}=${value}`), ...cidrs].join(' ');
}

function stateOf({ revoked_at, expires_at }: KeyRow): string {
  if (revoked_at !== null) return `revoked ${shortInstant(revoked_at)}`;
  if (expires_at === null) return 'live';
  return `${expires_at <= now() ? 'expired' : 'live until'} ${shortInstant(expires_at)}`;
}

function rotateCommand(): Command {
  return databaseCommand('rotate')
    .description('give an API key a new secret; the previous one works for a while longer')
    .argument('<id>', 'id of the key, as "sandkeep key list" shows it')
    .addOption(keyOverlap())
    .action(async (id: string, options: CommonOptions & { overlapSecs: number }) => {
      refuseNoId(id);
      const key = await withDatabase(options, 'key rotate', (pool) => rotate(pool, id, options.overlapSecs));
      const left =
        options.overlapSecs === 0
          ? 'What it was until now opens nothing any more.'
          : `What it was until now works for another ${options.overlapSecs} s.`;
      print(options, { id, key }, `${key}\n\nThis is the only time the key is shown. ${left}`);
    });
}

async function rotate(pool: Pool, id: string, overlapSecs: number): Promise<string> {
  const orgId = await findOrgOfKey(pool, id);
  if (orgId === undefined) throw noSuchKey(id);
  const { key } = await inTransaction(pool, async (tx) => {
    const row = await lockKey(tx, orgId, id);
    if (!row) throw noSuchKey(id);
    return rotateLocked(tx, row, operator('key rotate'), overlapSecs, now());
  }).catch(explained);
  return key;
}

function revokeCommand(): Command {
  return databaseCommand('revoke')
    .description('revoke an API key: within a second it is refused')
    .argument('<id>', 'id of the key, as "sandkeep key list" shows it')
    .action(async (id: string, options: CommonOptions) => {
      refuseNoId(id);
      const revoked = await withDatabase(options, 'key revoke', (pool) =>
        revokeKey(pool, id, operator('key revoke')),
      );
      if (!revoked) throw noSuchKey(id);
      const result = { id, revoked_at: shortInstant(revoked) };
      print(options, result, `the key ${id} is revoked since ${result.revoked_at}`);
    });
}

function refuseNoId(id: string): void {
  if (!isUuid(id)) throw new ExplainedError(`"${id}" is not the id of a key: see "sandkeep key list"`);
}

function noSuchKey(id: string): ExplainedError {
  return new ExplainedError(`there is no key with the id ${id}: see "sandkeep key list"`);
}
