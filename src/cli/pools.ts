import { Command } from 'commander';
import { readFileSync } from 'node:fs';
import { ExplainedError } from '../lib/explained-error.js';
import type { Page } from '../lib/page.js';
import type { PoolResponse, PoolWithSandboxes } from '../sandboxes/pools/schema.js';
import { readClient, sendForJson, withClientOptions, type ClientOptions } from './api-client.js';
import { print } from './command.js';
import { common, OperatorCommand } from './operator-command.js';
import { json, wide } from './options.js';
import { table } from './table.js';
import { jsonObject, objectIn, wholeNumber } from './values.js';

interface PoolOptions extends ClientOptions {
  json?: true;
  wide?: true;
}

interface PutOptions extends PoolOptions {
  file?: string;
  image?: string;
  pullPolicy?: string;
  size?: number;
  most?: number | 'none';
  vcpus?: number;
  memoryMib?: number;
  diskMib?: number;
  network?: object;
}

/** The fields of a request that this command reads. */
interface Body {
  image?: unknown;
  size?: unknown;
  resources?: object;
}

const PAGE = 100;

/** A client of the API: it needs no access to the data directory. */
export function poolsCommand(env: NodeJS.ProcessEnv): Command {
  return new Command('pools')
    .description('pools of started sandboxes that creates take, as a client of the API')
    .addCommand(listCommand(env))
    .addCommand(showCommand(env))
    .addCommand(putCommand(env))
    .addCommand(deleteCommand(env));
}

function poolCommand(name: string): Command {
  return withClientOptions(new OperatorCommand(name)).addOption(common(json()));
}

function listCommand(env: NodeJS.ProcessEnv): Command {
  return poolCommand('list')
    .addOption(common(wide()))
    .description('list the pools of the organization of the key')
    .action(async (options: PoolOptions) => {
      const client = readClient(options, env);
      const pools: PoolResponse[] = [];
      for (let cursor: string | null = ''; cursor !== null;) {
        const after: string = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`;
        const page: Page<PoolResponse> = await sendForJson(client, `/v1/pools?limit=${PAGE}${after}`);
        pools.push(...page.data);
        cursor = page.next_cursor;
      }
      print(options, pools, pools.length === 0 ? 'no pools' : poolTable(pools, options));
    });
}

function showCommand(env: NodeJS.ProcessEnv): Command {
  return poolCommand('show')
    .addOption(common(wide()))
    .description('show a pool with its sandboxes that no create has taken')
    .argument('<name>', 'name of the pool')
    .action(async (name: string, options: PoolOptions) => {
      const pool = await sendForJson<PoolWithSandboxes>(readClient(options, env), pathOf(name));
      const rows = pool.sandboxes.map((one) => [one.id, one.name, one.status, one.started_at ?? '']);
      const sandboxes =
        rows.length === 0 ? [] : [table(['SANDBOX', 'NAME', 'STATUS', 'STARTED'], rows, options)];
      print(options, pool, [poolTable([pool], options), ...sandboxes].join('\n\n'));
    });
}

function putCommand(env: NodeJS.ProcessEnv): Command {
  return poolCommand('put')
    .addOption(common(wide()))
    .description('create a pool, or make it as given: what is left out has its default')
    .argument('<name>', 'name of the pool')
    .option(
      '--file <path>',
      'the pool as JSON, as the API takes it; other options replace its fields; "-": standard input',
    )
    .option('--image <reference>', 'the image, with the text that creates name it by')
    .option('--size <number>', 'the sandboxes that are kept ready; 0: the pool rests', wholeNumber)
    .option('--most <number>', 'none is added while so many of the pool run; none: no limit', most)
    .option('--pull-policy <policy>', 'if_missing, never, or always: the pool follows the tag')
    .option('--vcpus <number>', 'vCPUs of each sandbox', wholeNumber)
    .option('--memory-mib <number>', 'memory of each sandbox', wholeNumber)
    .option('--disk-mib <number>', 'disk of each sandbox', wholeNumber)
    .option('--network <json>', 'the network of each sandbox, as the API takes it', jsonObject)
    .action(async (name: string, options: PutOptions) => {
      const body = requestOf(options);
      const pool = await sendForJson<PoolResponse>(readClient(options, env), pathOf(name), {
        method: 'PUT',
        body,
      });
      print(options, pool, poolTable([pool], options));
    });
}

function deleteCommand(env: NodeJS.ProcessEnv): Command {
  return poolCommand('delete')
    .description('delete a pool and its ready sandboxes; sandboxes that creates took stay')
    .argument('<name>', 'name of the pool')
    .action(async (name: string, options: PoolOptions) => {
      const client = readClient(options, env);
      const answer = await sendForJson<{ message: string }>(client, pathOf(name), { method: 'DELETE' });
      print(options, answer, answer.message);
    });
}

/** The service checks the fields. */
function requestOf({ file, image, pullPolicy, size, most: limit, network, ...options }: PutOptions): object {
  const base: Body = file === undefined ? {} : readFile(file);
  const { vcpus, memoryMib: memory_mib, diskMib: disk_size_mib } = options;
  const resources = given({ vcpus, memory_mib, disk_size_mib });
  const fields = given({
    image: image === undefined ? undefined : { type: 'oci', reference: image },
    pull_policy: pullPolicy,
    size,
    most: limit === 'none' ? null : limit,
    network,
  });
  const own = Object.keys(resources).length === 0 ? {} : { resources: { ...base.resources, ...resources } };
  const request: Body = { ...base, ...fields, ...own };
  if (request.image === undefined || request.size === undefined) {
    throw new ExplainedError('a pool has an image and a size: give --image and --size, or --file');
  }
  return request;
}

function given(fields: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}

function readFile(path: string): object {
  let text: string;
  try {
    text = readFileSync(path === '-' ? process.stdin.fd : path, 'utf8');
  } catch (error) {
    throw new ExplainedError(`cannot read the pool: ${(error as Error).message}`);
  }
  const found = objectIn(text);
  if (!found) throw new ExplainedError(`${path === '-' ? 'the input' : path} has no JSON object`);
  return found;
}

function most(text: string): number | 'none' {
  return text === 'none' ? text : wholeNumber(text);
}

function pathOf(name: string): string {
  return `/v1/pools/${encodeURIComponent(name)}`;
}

function poolTable(pools: readonly PoolResponse[], options: PoolOptions): string {
  const rows = pools.map((pool) => [
    pool.name,
    pool.image,
    String(pool.size),
    String(pool.ready),
    String(pool.starting),
    String(pool.given),
    pool.most === null ? 'none' : String(pool.most),
    pool.last_failure_message ?? '',
  ]);
  const head = ['NAME', 'IMAGE', 'SIZE', 'READY', 'STARTING', 'GIVEN', 'MOST', 'PROBLEM'];
  return table(head, rows, { ...options, optional: ['MOST', 'STARTING'] });
}
