import type { Command } from 'commander';
import type { SandboxResponse } from '../sandboxes/row.js';
import { readClient, sendForJson, withClientOptions, type ClientOptions } from './api-client.js';
import { print } from './command.js';
import { common, OperatorCommand } from './operator-command.js';
import { json } from './options.js';

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** A client of the API: it needs no access to the data directory. */
export function pauseCommand(env: NodeJS.ProcessEnv): Command {
  return makeCommand('pause', env, ({ name, status, last_failure_message: reason }) =>
    status === 'stopped'
      ? `${name} is paused: its memory is on the disk, and only its storage is billed`
      : `${name} is ${status}${reason == null ? '' : `: ${reason}`}`,
  ).description('pause a sandbox: its memory goes to the disk until it is resumed');
}

export function resumeCommand(env: NodeJS.ProcessEnv): Command {
  return makeCommand('resume', env, ({ name, status, last_failure_message: reason }) =>
    status === 'running' ? `${name} runs` : `${name} is ${status}${reason == null ? '' : `: ${reason}`}`,
  ).description('resume a paused sandbox, which continues its memory');
}

function makeCommand(
  operation: 'pause' | 'resume',
  env: NodeJS.ProcessEnv,
  textOf: (sandbox: SandboxResponse) => string,
): Command {
  return withClientOptions(new OperatorCommand(operation))
    .addOption(common(json()))
    .argument('<sandbox>', 'the name or the id of the sandbox')
    .action(async (sandbox: string, options: ClientOptions & { json?: true }) => {
      const client = readClient(options, env);
      const by = UUID.test(sandbox) ? '' : 'by-name/';
      const status = operation === 'pause' ? 'paused' : 'running';
      const path = `/v1/sandboxes/${by}${encodeURIComponent(sandbox)}/${operation}?wait_for=${status}`;
      const answer = await sendForJson<SandboxResponse>(client, path, { method: 'POST' });
      print(options, answer, textOf(answer));
    });
}
