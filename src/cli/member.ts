import { Command, Option } from 'commander';
import { operator } from '../audit/events/actor.js';
import { ExplainedError } from '../lib/explained-error.js';
import { addMember } from '../members/add.js';
import { presentMember } from '../members/list.js';
import { getMembers } from '../members/queries.js';
import { removeMember } from '../members/remove.js';
import { ORG_ROLES, type OrgRole } from '../orgs/schema.js';
import { databaseCommand, print, tableCommand, withDatabase, type CommonOptions } from './command.js';
import { namedOrg } from './named-org.js';
import { table } from './table.js';

type MemberOptions = CommonOptions & { org: string };

export function memberCommand(): Command {
  return new Command('member')
    .description('members: people of an organization, for contact and audit; they need no password here')
    .addCommand(addCommand())
    .addCommand(listCommand())
    .addCommand(removeCommand());
}

function addCommand(): Command {
  return databaseCommand('add')
    .description('add a person to the members')
    .requiredOption('--org <slug>', 'the organization')
    .requiredOption('--email <address>', 'the e-mail address; the audit trail has it redacted')
    .option('--name <name>', 'the name, for people')
    .addOption(new Option('--role <role>', 'the role of the person').choices(ORG_ROLES).default('member'))
    .action(async (options: MemberOptions & { email: string; name?: string; role: OrgRole }) => {
      const { email, role, name = null } = options;
      const member = await withDatabase(options, 'member add', async (pool) =>
        addMember(
          pool,
          await namedOrg(pool, options.org),
          { email, role, displayName: name },
          operator('member add'),
        ),
      );
      print(options, presentMember(member), `${email} is a member (${role}) of "${options.org}"`);
    });
}

function listCommand(): Command {
  return tableCommand('list')
    .description('list the members of an organization')
    .requiredOption('--org <slug>', 'the organization')
    .action(async (options: MemberOptions) => {
      const members = await withDatabase(options, 'member list', async (pool) =>
        getMembers(pool, await namedOrg(pool, options.org), undefined, null),
      );
      const view = members.map(presentMember);
      const rows = view.map(({ email, role, display_name, joined_at }) => [
        email,
        role,
        display_name ?? '',
        joined_at,
      ]);
      print(options, view, table(['E-MAIL', 'ROLE', 'NAME', 'SINCE'], rows, options));
    });
}

function removeCommand(): Command {
  return databaseCommand('remove')
    .description('remove a person from the members')
    .requiredOption('--org <slug>', 'the organization')
    .argument('<email>', 'the e-mail address')
    .action(async (email: string, options: MemberOptions) => {
      const member = await withDatabase(options, 'member remove', async (pool) =>
        removeMember(pool, await namedOrg(pool, options.org), email, operator('member remove')),
      );
      if (!member) throw new ExplainedError(`${email} is not a member: see "sandkeep member list"`);
      print(options, presentMember(member), `${member.email} is a member no more`);
    });
}
