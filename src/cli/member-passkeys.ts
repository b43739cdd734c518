import type { Command } from 'commander';
import { operator } from '../audit/events/actor.js';
import { inTransaction } from '../db/transaction.js';
import { ExplainedError } from '../lib/explained-error.js';
import { now } from '../lib/instant.js';
import { isUuid } from '../lib/uuid.js';
import { lockMemberOrThrow } from '../members/lock-member.js';
import { presentPasskey } from '../people/passkeys/present.js';
import { getPasskeys } from '../people/passkeys/queries.js';
import { removePasskeys } from '../people/passkeys/remove.js';
import { databaseCommand, print, tableCommand, withDatabase, type CommonOptions } from './command.js';
import { explained } from './explained.js';
import { namedOrg } from './named-org.js';
import { table } from './table.js';

type MemberOptions = CommonOptions & { org: string };

export function passkeysCommand(): Command {
  return tableCommand('passkeys')
    .description('list the passkeys of a member')
    .requiredOption('--org <slug>', 'the organization')
    .argument('<email>', 'the e-mail address')
    .action(async (email: string, options: MemberOptions) => {
      const rows = await withDatabase(options, 'member passkeys', async (pool) => {
        const orgId = await namedOrg(pool, options.org);
        const read = inTransaction(pool, async (tx) => {
          const { member } = await lockMemberOrThrow(tx, orgId, { email });
          return getPasskeys(tx, orgId, member.id);
        });
        return read.catch(explained);
      });
      const view = rows.map((row) => {
        const { id, name, created_at, used_at } = presentPasskey(row, false);
        return { id, name, created_at, used_at };
      });
      const cells = view.map(({ id, name, created_at, used_at }) => [id, name, created_at, used_at ?? '']);
      print(options, view, table(['ID', 'NAME', 'SINCE', 'USED'], cells, options));
    });
}

export function removePasskeysCommand(): Command {
  return databaseCommand('remove-passkeys')
    .description('remove lost passkeys of a member; the sessions that they opened end at once')
    .requiredOption('--org <slug>', 'the organization')
    .argument('<email>', 'the e-mail address')
    .option('--id <uuid>', 'one passkey (default: every passkey of the member)')
    .action(async (email: string, options: MemberOptions & { id?: string }) => {
      const { org, id = null } = options;
      if (id !== null && !isUuid(id)) {
        throw new ExplainedError(`"${id}" is not the id of a passkey: see "sandkeep member passkeys"`);
      }
      const removed = await withDatabase(options, 'member remove-passkeys', async (pool) =>
        removePasskeys(pool, await namedOrg(pool, org), { email }, id, {
          actor: operator('member remove-passkeys'),
          at: now(),
        }).catch(explained),
      );
      const names = removed.map(({ name }) => `"${name}"`).join(', ');
      print(
        options,
        removed,
        removed.length === 0
          ? `${email} has no passkey`
          : `removed ${names}\n\n"sandkeep member link --org ${org} ${email}" makes a link for a new one.`,
      );
    });
}
