import { Command } from 'commander';
import { operator } from '../audit/events/actor.js';
import { shortInstant } from '../lib/instant.js';
import { createOrg } from '../orgs/create.js';
import { listOrgs } from '../orgs/queries.js';
import { databaseCommand, print, tableCommand, withDatabase, type CommonOptions } from './command.js';
import { table } from './table.js';

export function orgCommand(): Command {
  return new Command('org')
    .description('organizations: each sees only its own sandboxes, volumes, events and usage')
    .addCommand(createCommand())
    .addCommand(listCommand());
}

function createCommand(): Command {
  return databaseCommand('create')
    .description('create an organization')
    .requiredOption('--name <name>', 'its name, for people')
    .requiredOption('--slug <slug>', 'its short name for commands: lower-case letters, digits and hyphens')
    .action(async (options: CommonOptions & { name: string; slug: string }) => {
      const org = await withDatabase(options, 'org create', (pool) =>
        createOrg(pool, options, operator('org create')),
      );
      print(
        options,
        org,
        `made the organization "${org.name}" (${org.id})\nnext: sandkeep key create --org ${org.slug} --name NAME`,
      );
    });
}

function listCommand(): Command {
  return tableCommand('list')
    .description('list organizations')
    .action(async (options: CommonOptions) => {
      const orgs = await withDatabase(options, 'org list', (pool) => listOrgs(pool));
      const view = orgs.map((org) => ({ ...org, created_at: shortInstant(org.created_at) }));
      const rows = view.map(({ slug, name, id, created_at }) => [slug, name, id, created_at]);
      print(options, view, table(['SLUG', 'NAME', 'ID', 'CREATED'], rows, options));
    });
}
