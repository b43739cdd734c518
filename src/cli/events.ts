import { Command } from 'commander';
import { operator } from '../audit/events/actor.js';
import { type EventKeys } from '../audit/events/event-keys.js';
import {
  describeEventKeys,
  eventKeySourceOf,
  findEventKeys,
  replaceLostKeys,
  rotateEventKey,
  type EventKeySource,
} from '../audit/log/signing-key.js';
import { setRetention } from '../audit/retention/set.js';
import { defaultOf } from '../config/options.js';
import { requireInstallation } from '../db/open.js';
import { ExplainedError } from '../lib/explained-error.js';
import { turnSwitch } from '../orgs/turn-switch.js';
import { databaseCommand, print, withDatabase, type CommonOptions } from './command.js';
import { withConfig } from './config-options.js';
import { exportCommand } from './events-export.js';
import { many, publicKeysIn, verifyCommand } from './events-verify.js';
import { namedOrg } from './named-org.js';
import { OperatorCommand, common } from './operator-command.js';
import { json } from './options.js';

export function eventsCommand(): Command {
  return new Command('events')
    .description('audit events: export, verification, retention, signing keys')
    .addCommand(exportCommand())
    .addCommand(verifyCommand())
    .addCommand(retentionCommand())
    .addCommand(commandLinesCommand())
    .addCommand(networkCommand())
    .addCommand(keyCommand());
}

function retentionCommand(): Command {
  return databaseCommand('retention')
    .description('set how long the events of an organization are kept')
    .requiredOption('--org <slug>', 'the organization')
    .requiredOption('--months <n>', 'whole months after the month of the event, or "forever"', months)
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

function commandLinesCommand(): Command {
  return databaseCommand('command-lines')
    .description('set whether the events of sessions have the full command line, which may hold secrets')
    .requiredOption('--org <slug>', 'the organization')
    .requiredOption('--record <on|off>', 'on, or off', onOrOff)
    .action(async (options: CommonOptions & { org: string; record: boolean }) => {
      const change = await withDatabase(options, 'events command-lines', async (pool) =>
        turnSwitch(
          pool,
          await namedOrg(pool, options.org),
          { name: 'command_lines', on: options.record },
          operator('events command-lines'),
        ),
      );
      const shown = options.record ? 'have the full command line' : 'have the program and no arguments';
      print(options, change, `events of sessions of ${options.org} ${shown}`);
    });
}

function networkCommand(): Command {
  return databaseCommand('network')
    .description('set whether the destinations of all sandboxes of an organization are events')
    .requiredOption('--org <slug>', 'the organization')
    .requiredOption('--record <on|off>', 'on, or off', onOrOff)
    .action(async (options: CommonOptions & { org: string; record: boolean }) => {
      const change = await withDatabase(options, 'events network', async (pool) =>
        turnSwitch(
          pool,
          await namedOrg(pool, options.org),
          { name: 'network_record', on: options.record },
          operator('events network'),
        ),
      );
      const recorded = options.record ? 'of all sandboxes' : 'of sandboxes that ask for it, only,';
      print(options, change, `the destinations ${recorded} of ${options.org} are events`);
    });
}

function onOrOff(text: string): boolean {
  if (text === 'on' || text === 'off') return text === 'on';
  throw new ExplainedError('--record must be "on" or "off"');
}

function months(text: string): number | 'forever' {
  if (text === 'forever') return text;
  if (/^[1-9]\d{0,3}$/.test(text)) return Number(text);
  throw new ExplainedError('--months must be "forever" or a whole number from 1 to 9999');
}

function keyCommand(): Command {
  const command = new OperatorCommand('key');
  return withConfig(command, ['config', 'dataDir', 'eventKeys', 'eventKeysFile'], { isCommon: true })
    .description('print the public keys that verify the log, the current one first')
    .option('--rotate', 'create a new key first; the public halves of older keys are kept')
    .addOption(
      many(
        '--lost <key>',
        'create a new file for a lost one, with the public half of its key as printed before',
      ),
    )
    .addOption(common(json()))
    .action(async (options: CommonOptions & { rotate?: true; lost: string[] }) => {
      const source = eventKeySourceOf(options);
      if (options.lost.length > 0) {
        if ('keys' in source) {
          throw new ExplainedError('the option event-keys has the keys: put a new key first there');
        }
        replaceLostKeys(source.file, publicKeysIn(options.lost));
      }
      if (options.rotate) {
        if ('keys' in source) {
          throw new ExplainedError('the option event-keys has the keys: put a new key first there');
        }
        await keysThere(source, options);
        rotateEventKey(source.file);
      }
      const { known } = await keysThere(source, options);
      const keys = known.map(({ id, bytes }) => ({ id, public_key: bytes.toString('base64') }));
      print(options, { keys }, keys.map(({ public_key, id }) => `${public_key}  ${id}`).join('\n'));
    });
}

/** Creates no key, as a new key has signed no log. */
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
