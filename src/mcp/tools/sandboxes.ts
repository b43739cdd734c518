import { Type } from 'typebox';
import { Words } from '../../http/schema.js';
import type { Api } from '../api.js';
import { sandboxInput, sandboxPath } from '../sandbox-path.js';
import { jsonResult, READS, tool, type ToolContext } from '../tool.js';
import { presentSandbox, type Sandbox } from './present-sandbox.js';
import { labelsInput, shown, START_SECS, startFields, startSandboxOf } from './start-sandbox.js';

const STOP_SECS = 30;
const LIST = { default: 20, max: 100 };

const createSandbox = tool({
  name: 'create_sandbox',
  title: 'Create and start a sandbox',
  description:
    'Creates an isolated sandbox from a container image, starts it, and waits until it runs. By default it has no network, and it is removed with its disk when it stops or its time is over. Pick an image that has the programs you need, because without a network nothing can be installed.',
  scopes: ['sandboxes:write'],
  annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: false },
  input: {
    image: Type.String({
      minLength: 1,
      description: 'The container image, such as `python:3.13-slim` or `node:24-slim`.',
    }),
    ...startFields,
    pull_policy: Type.Optional(
      Words(['if_missing', 'always', 'never'], {
        description:
          'When the image is pulled. Default: `if_missing`. `never`: it is on the machine already.',
      }),
    ),
  },
  async call({ image, pull_policy: pullPolicy, ...input }, context) {
    const policy = pullPolicy === undefined ? {} : { pull_policy: pullPolicy };
    return startSandboxOf({ type: 'oci', reference: image }, input, context, policy);
  },
});

const listSandboxes = tool({
  name: 'list_sandboxes',
  title: 'List sandboxes',
  description: 'Lists sandboxes, the newest first.',
  scopes: ['sandboxes:read'],
  annotations: READS,
  input: {
    status: Type.Optional(
      Type.Array(Type.String(), {
        maxItems: 10,
        description: 'Only these statuses: such as `running`, `starting`, `stopped` or `failed`.',
      }),
    ),
    labels: Type.Optional(labelsInput),
    name_prefix: Type.Optional(
      Type.String({ minLength: 1, description: 'Only names that begin with this text.' }),
    ),
    name_contains: Type.Optional(
      Type.String({
        minLength: 1,
        description: 'Only names with this text in them, in any case of letters.',
      }),
    ),
    limit: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: LIST.max,
        default: LIST.default,
        description: `The most sandboxes of the answer. Default: ${LIST.default}.`,
      }),
    ),
    cursor: Type.Optional(
      Type.String({ description: 'The `next_cursor` of the previous answer, with the same filters.' }),
    ),
  },
  async call({ status = [], labels, limit = LIST.default, cursor, ...names }, { api }) {
    const page = await listPage(api, [
      ...status.map((one): [string, string] => ['status', one]),
      ...(labels ? [['labels', JSON.stringify(labels)] as [string, string]] : []),
      ...Object.entries(names),
      ['limit', String(limit)],
      ...(cursor === undefined ? [] : [['cursor', cursor] as [string, string]]),
    ]);
    return jsonResult({ sandboxes: page.data.map(presentSandbox), next_cursor: page.next_cursor });
  },
});

interface SandboxPage {
  data: Sandbox[];
  next_cursor: string | null;
}

export function listPage(api: Api, query: [string, string][]): Promise<SandboxPage> {
  return api.json({ method: 'GET', path: '/v1/sandboxes', query });
}

const getSandbox = tool({
  name: 'get_sandbox',
  title: 'Get a sandbox',
  description: 'Shows the status of a sandbox, why it ended or waits, and its limits.',
  scopes: ['sandboxes:read'],
  annotations: READS,
  input: sandboxInput,
  async call({ sandbox }, { api }) {
    return shown(await api.json<Sandbox>({ method: 'GET', path: sandboxPath(sandbox) }));
  },
});

const startSandbox = tool({
  name: 'start_sandbox',
  title: 'Start a sandbox',
  description: 'Starts a sandbox that has stopped, and waits until it runs. Its disk is as it was.',
  scopes: ['sandboxes:write'],
  annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: true },
  input: sandboxInput,
  async call({ sandbox }, context) {
    context.progress(`starting ${sandbox}`);
    return shown(await change(context, sandbox, 'start', 'running', START_SECS), 'running');
  },
});

const stopSandbox = tool({
  name: 'stop_sandbox',
  title: 'Stop a sandbox',
  description:
    'Ends every command of a sandbox and stops it. An ephemeral sandbox is removed with its disk; another one keeps it.',
  scopes: ['sandboxes:write'],
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: true },
  input: sandboxInput,
  async call({ sandbox }, context) {
    return shown(await change(context, sandbox, 'stop', 'stopped', STOP_SECS), 'stopped');
  },
});

const deleteSandbox = tool({
  name: 'delete_sandbox',
  title: 'Delete a sandbox',
  description: 'Ends a sandbox in any status and removes it with its disk. This cannot be undone.',
  scopes: ['sandboxes:write'],
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false },
  input: sandboxInput,
  async call({ sandbox }, { api }) {
    return jsonResult(await api.json({ method: 'DELETE', path: sandboxPath(sandbox) }));
  },
});

function change(
  { api }: ToolContext,
  sandbox: string,
  verb: 'start' | 'stop',
  wanted: string,
  secs: number,
): Promise<Sandbox> {
  const query = { wait_for: wanted, wait_timeout: String(secs) };
  return api.json({ method: 'POST', path: `${sandboxPath(sandbox)}/${verb}`, query });
}

export const SANDBOX_TOOLS = [
  createSandbox,
  listSandboxes,
  getSandbox,
  startSandbox,
  stopSandbox,
  deleteSandbox,
];
