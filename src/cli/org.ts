import { Command } from 'commander';
import { operator } from '../audit/events/actor.js';
import { shortInstant } from '../lib/instant.js';
import { ExplainedError } from '../lib/explained-error.js';
import { createOrg } from '../orgs/create.js';
import { changePreviewSettings } from '../orgs/preview-settings.js';
import { listOrgs } from '../orgs/queries.js';
import { databaseCommand, print, tableCommand, withDatabase, type CommonOptions } from './command.js';
import { namedOrg } from './named-org.js';
import { table } from './table.js';

export function orgCommand(): Command {
  return new Command('org')
    .description('organizations: each sees only its own sandboxes, volumes, events and usage')
    .addCommand(createCommand())
    .addCommand(listCommand())
    .addCommand(previewsCommand());
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

function previewsCommand(): Command {
  return databaseCommand('previews')
    .description('set whether previews may be public, and whether browsers first see whose page they open')
    .requiredOption('--org <slug>', 'the organization')
    .option('--public <on|off>', 'on, or off', onOrOff)
    .option('--notice <on|off>', 'on, or off', onOrOff)
    .action(async (options: CommonOptions & { org: string; public?: boolean; notice?: boolean }) => {
      if (options.public === undefined && options.notice === undefined) {
        throw new ExplainedError('name a setting: --public on|off, or --notice on|off');
      }
      const { after, ...rest } = await withDatabase(options, 'org previews', async (pool) =>
        changePreviewSettings(pool, await namedOrg(pool, options.org), options, operator('org previews')),
      );
      const open = after.public ? 'may be public' : 'are never public';
      const first = after.notice ? 'first see whose page they open' : 'see pages at once';
      print(options, { ...rest, after }, `previews of ${options.org} ${open}; browsers ${first}`);
    });
}

function onOrOff(text: string): boolean {
  if (text === 'on' || text === 'off') return text === 'on';
  throw new ExplainedError('write "on" or "off"');
}
