import { Command } from 'commander';
import { operator } from '../audit/events/actor.js';
import { type EventKeys } from '../audit/events/event-keys.js';
import {
  describeEventKeys,
  eventKeySourceOf,
  findEventKeys,
  rotateEventKey,
  type EventKeySource,
} from '../audit/log/signing-key.js';
import { setRetention } from '../audit/retention/set.js';
import { defaultOf } from '../config/options.js';
import { requireInstallation } from '../db/open.js';
import { ExplainedError } from '../lib/explained-error.js';
import { databaseCommand, print, withDatabase, type CommonOptions } from './command.js';
import { withConfig } from './config-options.js';
import { exportCommand } from './events-export.js';
import { verifyCommand } from './events-verify.js';
import { namedOrg } from './named-org.js';
import { OperatorCommand, common } from './operator-command.js';
import { json } from './options.js';

export function eventsCommand(): Command {
  return new Command('events')
    .description('audit events: export them, check that nobody changed them, and say how long they are kept')
    .addCommand(exportCommand())
    .addCommand(verifyCommand())
    .addCommand(retentionCommand())
    .addCommand(keyCommand());
}

function retentionCommand(): Command {
  return databaseCommand('retention')
    .description('say how long the events of an organization are kept')
    .requiredOption('--org <slug>', 'the organization')
    .requiredOption(
      '--months <n>',
      'whole months after the one in which they were written, or "forever"',
      months,
    )
    .action(async (options: CommonOptions & { org: string; months: number | 'forever' }) => {
      const wanted = options.months === 'forever' ? null : options.months;
      const change = await withDatabase(options, 'events retention', async (pool, _, activeKeys) =>
        setRetention(
          { pool, activeKeys },
          await namedOrg(pool, options.org),
          wanted,
          operator('events retention'),
        ),
      );
      const kept = wanted === null ? 'for ever' : `for ${wanted} months`;
      print(options, change, `events of ${options.org} are kept ${kept}`);
    });
}

function months(text: string): number | 'forever' {
  if (text === 'forever') return text;
  if (/^[1-9]\d{0,3}$/.test(text)) return Number(text);
  throw new ExplainedError('--months must be "forever" or a whole number from 1 to 9999');
}

function keyCommand(): Command {
  const command = new OperatorCommand('key');
  return withConfig(command, ['config', 'dataDir', 'eventKeys', 'eventKeysFile'], { isCommon: true })
    .description('print the public key by which others can check the log, those that signed before after it')
    .option('--rotate', 'make a new key first; of the older ones the public halves are kept')
    .addOption(common(json()))
    .action(async (options: CommonOptions & { rotate?: true }) => {
      const source = eventKeySourceOf(options);
      if (options.rotate) {
        if ('keys' in source) {
          throw new ExplainedError('the keys come from SANDKEEP_EVENT_KEYS: put a new one before them there');
        }
        await keysThere(source, options);
        rotateEventKey(source.file);
      }
      const { known } = await keysThere(source, options);
      const keys = known.map(({ id, bytes }) => ({ id, public_key: bytes.toString('base64') }));
      print(options, { keys }, keys.map(({ public_key, id }) => `${public_key}  ${id}`).join('\n'));
    });
}

/** One that is made here would have signed no log. */
async function keysThere(
  source: EventKeySource,
  { dataDir, eventKeysFile }: CommonOptions,
): Promise<EventKeys> {
  const keys = findEventKeys(source);
  if (!keys) {
    if (eventKeysFile === defaultOf('eventKeysFile', dataDir)) await requireInstallation(dataDir);
    throw new ExplainedError(
      `there is no key in ${describeEventKeys(source)}: name the data directory of the service, or the file with --event-keys-file`,
    );
  }
  return keys;
}
