import { createReadStream } from 'node:fs';
import { Command, Option } from 'commander';
import { SingleBar } from 'cli-progress';
import { operator } from '../events/actor.js';
import { setRetention } from '../events/retention.js';
import {
  eventKeySourceOf,
  openEventKeys,
  parsePublicKey,
  rotateEventKey,
  type PublicKey,
} from '../events/signing-key.js';
import { verifyStore } from '../events/verify-store.js';
import type { Verdict } from '../events/verify.js';
import type { Pool } from '../db/pool.js';
import { ExplainedError } from '../lib/explained.js';
import { listOrgs } from '../orgs/queries.js';
import { databaseCommand, print, withDatabase, type CommonOptions } from './command.js';
import { namedOrg } from './named-org.js';
import { exportCommand } from './events-export.js';
import * as option from './options.js';

interface KeyOptions extends CommonOptions {
  eventKeys?: string;
  eventKeysFile?: string;
}

export function eventsCommand(): Command {
  return new Command('events')
    .description('audit events: export them, check that nobody changed them, and say how long they are kept')
    .addCommand(exportCommand())
    .addCommand(verifyCommand())
    .addCommand(retentionCommand())
    .addCommand(keyCommand());
}

interface VerifyOptions extends KeyOptions {
  org?: string;
  file?: string;
  publicKey: string[];
}

function verifyCommand(): Command {
  return databaseCommand('verify')
    .description(
      'walk the log of audit events and name the first that was changed, removed, inserted or reordered',
    )
    .option('--org <slug>', 'only this organization (default: all)')
    .option('--file <file>', 'an exported log in place of the database')
    .addOption(
      new Option('--public-key <key>', 'a key to trust beside those of this installation; may be repeated')
        .argParser((text: string, keys: string[]) => [...keys, text])
        .default([], 'none'),
    )
    .addOption(option.eventKeys())
    .addOption(option.eventKeysFile())
    .action(async (options: VerifyOptions) => {
      const results =
        options.file === undefined ? await verifyOrgs(options) : [await verifyOne(options, options.file)];
      const lines = results.map(({ name, ...result }) => sentence(name, result));
      print(options, options.file === undefined ? results : results[0], lines.join('\n'));
      if (results.some(({ wrong }) => wrong !== null)) process.exitCode = 1;
    });
}

type Result = Verdict & { name: string; unsealed?: number; begins_after?: number };

async function verifyOrgs(options: VerifyOptions): Promise<Result[]> {
  const trusted = [...openEventKeys(eventKeySourceOf(options))().known, ...named(options)];
  return withDatabase(options, 'events verify', async (pool) => {
    const results: Result[] = [];
    for (const { id, slug } of await orgsOf(pool, options.org)) {
      const verdict = await withProgress(slug, (onEntry) => verifyStore(pool, id, trusted, onEntry));
      results.push({ name: slug, ...verdict });
    }
    return results;
  });
}

async function orgsOf(pool: Pool, slug: string | undefined): Promise<{ id: string; slug: string }[]> {
  return slug === undefined ? listOrgs(pool) : [{ id: await namedOrg(pool, slug), slug }];
}

async function verifyOne(options: VerifyOptions, file: string): Promise<Result> {
  // With a key that is named nothing of an installation is needed: who checks may be somebody else.
  const trusted =
    options.publicKey.length > 0 ? named(options) : openEventKeys(eventKeySourceOf(options))().known;
  // Loaded only here: what checks lines takes as long to load as all else.
  const { verifyFile } = await import('../events/verify-file.js');
  const verdict = await withProgress(file, (onEntry) =>
    verifyFile(createReadStream(file), trusted, onEntry).catch((cause: NodeJS.ErrnoException) => {
      if (cause.syscall === undefined) throw cause;
      throw new ExplainedError(`${file} cannot be read: ${cause.message}`, { cause });
    }),
  );
  return { name: file, ...verdict };
}

function named({ publicKey }: VerifyOptions): PublicKey[] {
  return publicKey.map(parsePublicKey);
}

function sentence(
  name: string,
  { wrong, entries, checkpoints, unsealed = 0, begins_after = 0 }: Omit<Result, 'name'>,
): string {
  if (wrong !== null) return `${name}: TAMPERED WITH: ${wrong}`;
  const part = begins_after > 0 ? `; it begins after entry ${begins_after}` : '';
  const later = unsealed > 0 ? `; ${unsealed} events are not sealed yet` : '';
  return `${name}: in order: ${entries} events, ${checkpoints} signed checkpoints${part}${later}`;
}

/** A counter on a terminal; nothing where nobody looks. */
async function withProgress<T>(
  name: string,
  work: (onEntry: (seq: number) => void) => Promise<T>,
): Promise<T> {
  if (!process.stderr.isTTY) return work(() => undefined);
  const bar = new SingleBar({ format: `${name}  entry {seq}`, stream: process.stderr, hideCursor: true });
  bar.start(0, 0, { seq: 0 });
  try {
    return await work((seq) => {
      if (seq % 1_000 === 0) bar.update({ seq });
    });
  } finally {
    bar.stop();
  }
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
      const change = await withDatabase(options, 'events retention', async (pool) =>
        setRetention(pool, await namedOrg(pool, options.org), wanted, operator('events retention')),
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
  return new Command('key')
    .description('print the public key by which others can check the log, those that signed before after it')
    .option('--rotate', 'make a new key first; of the older ones the public halves are kept')
    .addOption(option.dataDir())
    .addOption(option.eventKeys())
    .addOption(option.eventKeysFile())
    .addOption(option.json())
    .action((options: KeyOptions & { rotate?: true }) => {
      const source = eventKeySourceOf(options);
      if (options.rotate) {
        if ('keys' in source) {
          throw new ExplainedError('the keys come from SANDKEEP_EVENT_KEYS: put a new one before them there');
        }
        rotateEventKey(source.file);
      }
      const { known } = openEventKeys(source)();
      const keys = known.map(({ id, bytes }) => ({ id, public_key: bytes.toString('base64') }));
      print(options, { keys }, keys.map(({ public_key, id }) => `${public_key}  ${id}`).join('\n'));
    });
}
