import { Command, InvalidArgumentError } from 'commander';
import { ExplainedError } from '../lib/explained-error.js';
import type { Page } from '../lib/page.js';
import { parseTemplateName } from '../templates/reference.js';
import type { TemplateResponse } from '../templates/schema.js';
import {
  readClient,
  sendForJson,
  uploadForJson,
  withClientOptions,
  type Client,
  type ClientOptions,
} from './api-client.js';
import { print } from './command.js';
import { common, OperatorCommand } from './operator-command.js';
import { json, wide } from './options.js';
import { table } from './table.js';
import { addLabel, jsonObject, wholeNumber } from './values.js';
import { packContext } from './template-context.js';
import { followLog, type LogEvent } from './template-log.js';

interface TemplateOptions extends ClientOptions {
  json?: true;
  wide?: true;
}

interface BuildOptions extends TemplateOptions {
  tag: string;
  file: string;
  buildArg: Record<string, string>;
  target?: string;
  label: Record<string, string>;
  vcpus?: number;
  memoryMib?: number;
  diskMib?: number;
  network?: object;
  timeout?: number;
  cache: boolean;
  detach?: true;
}

const PAGE = 100;
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

/** A client of the API: it needs no access to the data directory. */
export function templatesCommand(env: NodeJS.ProcessEnv): Command {
  return new Command('templates')
    .description('templates that are built from a Dockerfile, as a client of the API')
    .addCommand(buildCommand(env))
    .addCommand(listCommand(env))
    .addCommand(showCommand(env))
    .addCommand(logCommand(env))
    .addCommand(deleteCommand(env));
}

function templateCommand(name: string): Command {
  return withClientOptions(new OperatorCommand(name)).addOption(common(json()));
}

function buildCommand(env: NodeJS.ProcessEnv): Command {
  return templateCommand('build')
    .description('build a template from a directory with a Dockerfile, and show the log')
    .argument('<directory>', 'the context, without what its .dockerignore names')
    .requiredOption(
      '-t, --tag <name:tag>',
      'the name and the tag of the template; default of the tag: latest',
      name,
    )
    .option('-f, --file <path>', 'the Dockerfile, in the context', 'Dockerfile')
    .option('--build-arg <NAME=value>', 'a value for ARG, which is not secret; repeatable', addLabel, {})
    .option(
      '--target <stage>',
      'the stage of the Dockerfile to build, by its name or number (default: the last one)',
    )
    .option('--label <key=value>', 'a label of the template and its build; repeatable', addLabel, {})
    .option('--vcpus <number>', 'vCPUs of the sandboxes of the build', wholeNumber)
    .option('--memory-mib <number>', 'memory of the sandboxes of the build', wholeNumber)
    .option('--disk-mib <number>', 'disk of the sandboxes of the build', wholeNumber)
    .option('--network <json>', 'the network of the sandboxes of the build, as the API takes it', jsonObject)
    .option('--timeout <seconds>', 'the most seconds of the build', wholeNumber)
    .option('--no-cache', 'run every step again')
    .option('--detach', 'do not wait for the build')
    .action(async (directory: string, options: BuildOptions) => {
      const client = readClient(options, env);
      const context = packContext(directory, options.file);
      const queued = await uploadForJson<TemplateResponse>(
        client,
        `/v1/templates?${queryOf(options)}`,
        context,
      );
      if (options.detach) return print(options, queued, `the build ${queued.id} waits for its turn`);
      await followLog(client, queued.id, options.json ? toErrors : show);
      const built = await sendForJson<TemplateResponse>(client, `/v1/templates/${queued.id}`);
      if (built.status !== 'succeeded') throw new ExplainedError(`the build has ${wordsFor(built)}`);
      print(options, built, `${built.name}:${built.tag} is built: ${sizeOf(built)}, ${built.id}`);
    });
}

function listCommand(env: NodeJS.ProcessEnv): Command {
  return templateCommand('list')
    .addOption(common(wide()))
    .description('list the templates of the organization of the key, and their builds')
    .action(async (options: TemplateOptions) => {
      const client = readClient(options, env);
      const found: TemplateResponse[] = [];
      for (let cursor: string | null = ''; cursor !== null;) {
        const after: string = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`;
        const page: Page<TemplateResponse> = await sendForJson(client, `/v1/templates?limit=${PAGE}${after}`);
        found.push(...page.data);
        cursor = page.next_cursor;
      }
      print(options, found, found.length === 0 ? 'no templates' : templateTable(found, options));
    });
}

function showCommand(env: NodeJS.ProcessEnv): Command {
  return templateCommand('show')
    .addOption(common(wide()))
    .description('show a template, or its newest build where none has succeeded')
    .argument('<template>', 'name:tag, or the id of a build')
    .action(async (reference: string, options: TemplateOptions) => {
      const found = await find(readClient(options, env), reference);
      const error = found.error ? [`${found.error.code}: ${found.error.message}`] : [];
      print(options, found, [templateTable([found], options), ...error].join('\n\n'));
    });
}

function logCommand(env: NodeJS.ProcessEnv): Command {
  return withClientOptions(new OperatorCommand('log'))
    .description('show the log of a build until it ends')
    .argument('<template>', 'name:tag of the newest build, or its id')
    .action(async (reference: string, options: TemplateOptions) => {
      const client = readClient(options, env);
      const { id } = await find(client, reference, { isNewest: true });
      await followLog(client, id, show);
    });
}

function deleteCommand(env: NodeJS.ProcessEnv): Command {
  return templateCommand('delete')
    .description('delete a template, or cancel a build; sandboxes keep their disks')
    .argument('<template>', 'name:tag, or the id of a build')
    .action(async (reference: string, options: TemplateOptions) => {
      const client = readClient(options, env);
      const { id } = await find(client, reference);
      const answer = await sendForJson<{ message: string }>(client, `/v1/templates/${id}`, {
        method: 'DELETE',
      });
      print(options, answer, answer.message);
    });
}

/** The one that has the tag, or the newest build with it. */
async function find(client: Client, reference: string, { isNewest = false } = {}): Promise<TemplateResponse> {
  if (UUID.test(reference)) return sendForJson(client, `/v1/templates/${reference}`);
  const named = parseTemplateName(reference);
  if (!named)
    throw new ExplainedError(`"${reference}" is no name:tag, such as agent:1, and no id of a build`);
  const query = new URLSearchParams({ ...named, limit: String(PAGE) });
  const { data } = await sendForJson<Page<TemplateResponse>>(client, `/v1/templates?${query.toString()}`);
  const found = (isNewest ? undefined : data.find(({ status }) => status === 'succeeded')) ?? data[0];
  if (!found) throw new ExplainedError(`there is no template "${named.name}:${named.tag}"`);
  return found;
}

function queryOf({
  tag,
  file,
  buildArg,
  target,
  label,
  network,
  timeout,
  cache,
  ...options
}: BuildOptions): string {
  const { vcpus, memoryMib: memory_mib, diskMib: disk_size_mib } = options;
  const resources = given({ vcpus, memory_mib, disk_size_mib });
  const sandbox = given({ network, resources: Object.keys(resources).length > 0 ? resources : undefined });
  const fields = {
    tag,
    dockerfile: file,
    build_args: textOf(buildArg),
    target,
    labels: textOf(label),
    sandbox: textOf(sandbox),
    timeout_secs: timeout,
    cache: cache ? undefined : false,
  };
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(given(fields))) query.set(key, String(value));
  return query.toString();
}

function textOf(object: object): string | undefined {
  return Object.keys(object).length === 0 ? undefined : JSON.stringify(object);
}

function given(fields: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}

function show({ source, text }: LogEvent): void {
  (source === 'stderr' ? process.stderr : process.stdout).write(text);
}

/** The output has the JSON alone. */
function toErrors({ text }: LogEvent): void {
  process.stderr.write(text);
}

function wordsFor({ status, error }: TemplateResponse): string {
  if (status === 'cancelled') return 'been cancelled';
  return `failed: ${error?.message ?? 'see the log'}`;
}

function sizeOf({ size_bytes }: TemplateResponse): string {
  let [size, unit] = [size_bytes ?? 0, 0];
  for (; size >= 1024 && unit < UNITS.length - 1; unit += 1) size /= 1024;
  return `${Number(size.toFixed(1))} ${UNITS[unit]}`;
}

function templateTable(templates: readonly TemplateResponse[], options: TemplateOptions): string {
  const rows = templates.map((one) => [
    one.name,
    one.tag,
    one.status,
    `${one.steps_done}/${one.steps}`,
    one.status === 'succeeded' ? sizeOf(one) : '',
    one.created_at,
    one.id,
  ]);
  return table(['NAME', 'TAG', 'STATUS', 'STEPS', 'SIZE', 'CREATED', 'ID'], rows, options);
}

function name(text: string): string {
  if (!parseTemplateName(text))
    throw new InvalidArgumentError('It must be a name and a tag, such as agent:1.');
  return text;
}
