import { Command, Option } from 'commander';
import { ROLE_NAMES, type Role } from '../access/roles.js';
import { operator } from '../audit/events/actor.js';
import type { Config } from '../config/options.js';
import { ExplainedError } from '../lib/explained-error.js';
import { now, shortInstant } from '../lib/instant.js';
import { addMember } from '../members/add.js';
import { changeMember } from '../members/change.js';
import { getInvitations } from '../members/invitation-queries.js';
import { inviteMember } from '../members/invite.js';
import { makeLink } from '../members/link.js';
import { presentInvitation, presentMember } from '../members/list.js';
import { getMembers } from '../members/queries.js';
import { removeMember } from '../members/remove.js';
import { revokeInvitation } from '../members/revoke-invitation.js';
import { unlinkMember } from '../members/unlink.js';
import { databaseCommand, print, tableCommand, withDatabase, type CommonOptions } from './command.js';
import { withConfig } from './config-options.js';
import { explained } from './explained.js';
import { passkeysCommand, removePasskeysCommand } from './member-passkeys.js';
import { namedOrg } from './named-org.js';
import { invitationHours, linkMinutes, memberLabel } from './options.js';
import { table } from './table.js';

type MemberOptions = CommonOptions & { org: string };

export function memberCommand(): Command {
  return new Command('member')
    .description('members: the people of an organization, who sign in to the console with a role')
    .addCommand(addCommand())
    .addCommand(changeCommand())
    .addCommand(linkCommand())
    .addCommand(unlinkCommand())
    .addCommand(inviteCommand())
    .addCommand(invitationsCommand())
    .addCommand(revokeInvitationCommand())
    .addCommand(passkeysCommand())
    .addCommand(removePasskeysCommand())
    .addCommand(listCommand())
    .addCommand(removeCommand());
}

const roleOption = () => new Option('--role <role>', 'the role of the person').choices(ROLE_NAMES);

function addCommand(): Command {
  return databaseCommand('add')
    .description('add a person to the members')
    .requiredOption('--org <slug>', 'the organization')
    .requiredOption('--email <address>', 'the e-mail address; the audit trail has it redacted')
    .option('--name <name>', 'the name, for people')
    .addOption(roleOption().default('member'))
    .addOption(memberLabel())
    .action(
      async (
        options: MemberOptions & { email: string; name?: string; role: Role; label?: Record<string, string> },
      ) => {
        const { email, role, label: labels = {}, name = null } = options;
        const member = await withDatabase(options, 'member add', async (pool) =>
          addMember(
            pool,
            await namedOrg(pool, options.org),
            { email, role, labels, displayName: name },
            operator('member add'),
          ).catch(explained),
        );
        print(options, presentMember(member), `${email} is a member (${role}) of "${options.org}"`);
      },
    );
}

function changeCommand(): Command {
  return databaseCommand('change')
    .description('change the role of a member or its limits; open sessions have them at once')
    .requiredOption('--org <slug>', 'the organization')
    .argument('<email>', 'the e-mail address')
    .addOption(roleOption())
    .addOption(memberLabel())
    .option('--no-labels', 'remove the limits')
    .action(
      async (
        email: string,
        options: MemberOptions & { role?: Role; label?: Record<string, string>; labels: boolean },
      ) => {
        const { role, label, labels: keep } = options;
        const labels = keep ? label : {};
        if (role === undefined && labels === undefined) {
          throw new ExplainedError('nothing to change: name a --role, a --label, or --no-labels');
        }
        const member = await withDatabase(options, 'member change', async (pool) =>
          changeMember(
            pool,
            await namedOrg(pool, options.org),
            { email },
            { role, labels },
            { actor: operator('member change'), at: now() },
          ).catch(explained),
        );
        const limits = describeLabels(member.labels);
        const only = limits === '' ? '' : `, only sandboxes with ${limits}`;
        print(options, presentMember(member), `${member.email} has the role ${member.role}${only}`);
      },
    );
}

interface LinkOptions extends MemberOptions, Pick<Config, 'publicUrl' | 'basePath' | 'port'> {
  minutes: number;
}

function linkCommand(): Command {
  return withConfig(
    databaseCommand('link')
      .description('make a link that signs a member in to the console once; it ends the previous link')
      .requiredOption('--org <slug>', 'the organization')
      .argument('<email>', 'the e-mail address')
      .addOption(linkMinutes()),
    ['publicUrl', 'basePath', 'port'],
  ).action(async (email: string, options: LinkOptions) => {
    const { org, minutes } = options;
    const made = await withDatabase(options, 'member link', async (pool) =>
      makeLink(pool, await namedOrg(pool, org), email, minutes, operator('member link')).catch(explained),
    );
    const link = linkText(made.token, options);
    const expires = shortInstant(made.expiresAt);
    print(
      options,
      { link, expires_at: expires },
      `${link}\n\nThe link opens one session as ${email}, until ${expires}: send it privately.`,
    );
  });
}

function linkText(token: string, options: Pick<LinkOptions, 'publicUrl' | 'basePath' | 'port'>): string {
  const { publicUrl = `http://localhost:${options.port}`, basePath = '' } = options;
  // A fragment is not sent to servers, so no log has it.
  return `${publicUrl}${basePath}/console/sign-in#${token}`;
}

interface InviteOptions extends Omit<LinkOptions, 'minutes'> {
  role: Role;
  label?: Record<string, string>;
  hours: number;
}

function inviteCommand(): Command {
  return withConfig(
    databaseCommand('invite')
      .description('invite a person by a link; a further invitation of the address replaces the first')
      .requiredOption('--org <slug>', 'the organization')
      .argument('<email>', 'the e-mail address')
      .addOption(roleOption().default('member'))
      .addOption(memberLabel())
      .addOption(invitationHours()),
    ['publicUrl', 'basePath', 'port'],
  ).action(async (email: string, options: InviteOptions) => {
    const { org, role, label: labels = {}, hours } = options;
    const { invitation, token } = await withDatabase(options, 'member invite', async (pool) =>
      inviteMember(
        pool,
        await namedOrg(pool, org),
        { email, role, labels, hours },
        { actor: operator('member invite'), at: now() },
      ).catch(explained),
    );
    const link = linkText(token, options);
    const shown = presentInvitation(invitation);
    print(
      options,
      { ...shown, link },
      `${link}\n\nThe link makes ${email} a member (${role}), until ${shown.expires_at}.`,
    );
  });
}

function invitationsCommand(): Command {
  return tableCommand('invitations')
    .description('list the open invitations of an organization')
    .requiredOption('--org <slug>', 'the organization')
    .action(async (options: MemberOptions) => {
      const invitations = await withDatabase(options, 'member invitations', async (pool) =>
        getInvitations(pool, await namedOrg(pool, options.org), undefined, null),
      );
      const view = invitations.map(presentInvitation);
      const rows = view.map(({ email, role, labels, created_at, expires_at }) => [
        email,
        role,
        describeLabels(labels),
        created_at,
        expires_at,
      ]);
      const headings = ['E-MAIL', 'ROLE', 'ONLY', 'SINCE', 'UNTIL'];
      print(options, view, table(headings, rows, { ...options, optional: ['ONLY', 'SINCE'] }));
    });
}

function revokeInvitationCommand(): Command {
  return databaseCommand('revoke-invitation')
    .description('end the link of an invitation')
    .requiredOption('--org <slug>', 'the organization')
    .argument('<email>', 'the e-mail address')
    .action(async (email: string, options: MemberOptions) => {
      const about = { actor: operator('member revoke-invitation'), at: now() };
      const invitation = await withDatabase(options, 'member revoke-invitation', async (pool) =>
        revokeInvitation(pool, await namedOrg(pool, options.org), { email }, about).catch(explained),
      );
      print(options, presentInvitation(invitation), `the invitation of ${invitation.email} is revoked`);
    });
}

function unlinkCommand(): Command {
  return databaseCommand('unlink')
    .description(
      'separate a member from its account of the provider; the next sign-in with the address takes it',
    )
    .requiredOption('--org <slug>', 'the organization')
    .argument('<email>', 'the e-mail address')
    .action(async (email: string, options: MemberOptions) => {
      const member = await withDatabase(options, 'member unlink', async (pool) =>
        unlinkMember(pool, await namedOrg(pool, options.org), email, operator('member unlink')).catch(
          explained,
        ),
      );
      print(options, presentMember(member), `${member.email} has no account any more, and is signed out`);
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
      const rows = view.map(({ email, role, labels, display_name, joined_at }) => [
        email,
        role,
        describeLabels(labels),
        display_name ?? '',
        joined_at,
      ]);
      const headings = ['E-MAIL', 'ROLE', 'ONLY', 'NAME', 'SINCE'];
      print(options, view, table(headings, rows, { ...options, optional: ['ONLY'] }));
    });
}

function removeCommand(): Command {
  return databaseCommand('remove')
    .description('remove a person from the members; the sessions of the person end at once')
    .requiredOption('--org <slug>', 'the organization')
    .argument('<email>', 'the e-mail address')
    .action(async (email: string, options: MemberOptions) => {
      const member = await withDatabase(options, 'member remove', async (pool) =>
        removeMember(
          pool,
          await namedOrg(pool, options.org),
          { email },
          { actor: operator('member remove'), at: now() },
        ).catch(explained),
      );
      print(options, presentMember(member), `${member.email} is no longer a member`);
    });
}

function describeLabels(labels: Record<string, string>): string {
  return Object.entries(labels)
    .map(([name, value]) => `${name}=${value}`)
    .join(' ');
}
