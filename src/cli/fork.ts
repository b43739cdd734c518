import type { Command } from 'commander';
import { ExplainedError } from '../lib/explained-error.js';
import { sleep } from '../lib/sleep.js';
import { isUuid } from '../lib/uuid.js';
import type { ForkOperation, ForkRequest } from '../snapshots/forks/schema.js';
import { readClient, sendForJson, withClientOptions, type ClientOptions } from './api-client.js';
import { print } from './command.js';
import { common, OperatorCommand } from './operator-command.js';
import { json, wide } from './options.js';
import { table } from './table.js';
import { addLabel, wholeNumber } from './values.js';

const POLL_MS = { first: 250, longest: 5_000 };

interface ForkOptions extends ClientOptions {
  json?: true;
  wide?: true;
  count: number;
  names?: string[];
  namePrefix?: string;
  label: Record<string, string>;
  start: boolean;
  shareVolumes?: true;
  copyVolumes?: true;
  inheritSecrets?: true;
  inheritPorts?: true;
  wait: boolean;
}

/** A client of the API: it needs no access to the data directory. */
export function forkCommand(env: NodeJS.ProcessEnv): Command {
  return withClientOptions(new OperatorCommand('fork'))
    .addOption(common(json()))
    .addOption(common(wide()))
    .description('make copies of a sandbox that start from its disk, as a client of the API')
    .argument('<sandbox>', 'name or id of a sandbox that is stopped or runs')
    .option('--count <number>', 'the number of copies', wholeNumber, 1)
    .option('--names <names>', 'the name of each copy, separated by commas', (text) => text.split(','))
    .option('--name-prefix <text>', 'the beginning of the names (default: the name of the sandbox)')
    .option('--label <name=value>', 'a further label of the copies; may be repeated', addLabel, {})
    .option('--no-start', 'leave the copies without a run')
    .option('--share-volumes', 'mount the volumes of the sandbox in the copies')
    .option('--copy-volumes', 'give each copy named volumes of its own, with the same files')
    .option('--inherit-secrets', 'give the secrets of the sandbox to the copies')
    .option('--inherit-ports', 'publish the ports of the sandbox on free ports of the host')
    .option('--no-wait', 'print the copies without waiting for the capture of the disk')
    .action(async (sandbox: string, options: ForkOptions) => {
      if (options.shareVolumes && options.copyVolumes)
        throw new ExplainedError('--share-volumes and --copy-volumes exclude each other: choose one');
      const client = readClient(options, env);
      const path = isUuid(sandbox) ? sandbox : `by-name/${encodeURIComponent(sandbox)}`;
      const body = requestOf(options);
      let operation = await sendForJson<ForkOperation>(client, `/v1/sandboxes/${path}/fork`, {
        method: 'POST',
        body,
      });
      for (let pause = POLL_MS.first; options.wait && !hasEnded(operation);) {
        await sleep(pause);
        pause = Math.min(2 * pause, POLL_MS.longest);
        operation = await sendForJson<ForkOperation>(client, `/v1/fork-operations/${operation.id}`);
      }
      if (operation.error) throw new ExplainedError(`no copies are made: ${operation.error.message}`);
      const rows = operation.sandboxes.map(({ id, name, slug, status }) => [id, name, slug, status]);
      print(options, operation, table(['SANDBOX', 'NAME', 'SLUG', 'STATUS'], rows, options));
    });
}

function hasEnded({ status }: ForkOperation): boolean {
  return status === 'succeeded' || status === 'failed';
}

/** The service checks the fields. */
function requestOf({ count, names, namePrefix, label: labels, start, ...asked }: ForkOptions): ForkRequest {
  return {
    count: names?.length ?? count,
    start,
    labels,
    ...(names === undefined ? {} : { names }),
    ...(namePrefix === undefined ? {} : { name_prefix: namePrefix }),
    ...(asked.shareVolumes ? { volumes: 'share' } : {}),
    ...(asked.copyVolumes ? { volumes: 'copy' } : {}),
    ...(asked.inheritSecrets ? { secrets: 'inherit' } : {}),
    ...(asked.inheritPorts ? { ports: 'inherit' } : {}),
  };
}
