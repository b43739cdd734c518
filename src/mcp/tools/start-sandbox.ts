import { randomBytes } from 'node:crypto';
import type { CallToolResult } from '@modelcontextprotocol/server';
import { Type, type Static, type TObject } from 'typebox';
import { jsonResult, type ToolContext } from '../tool.js';
import { networkInput, networkOf } from './network.js';
import { presentSandbox, type Sandbox } from './present-sandbox.js';

/** Clients of the protocol usually wait a minute for a result. */
export const START_SECS = 45;
const DEFAULT_LIFETIME_SECS = 3_600;
const LONGEST_LIFETIME_SECS = 24 * 3_600;
const DEFAULT_MEMORY_MIB = 512;
/** Such as `agent-k3v9x2`. */
const NAME_BYTES = 5;

export const labelsInput = Type.Record(Type.String(), Type.String(), {
  maxProperties: 64,
  description: 'Labels, such as `{"task": "report"}`.',
});

/** The input of a tool that starts a new sandbox, without its image. */
export const startFields = {
  name: Type.Optional(
    Type.String({
      description: 'A name that is unique in the organization. Default: one that is free.',
    }),
  ),
  vcpus: Type.Optional(
    Type.Integer({ minimum: 0, default: 1, description: 'The number of virtual CPUs. Default: 1.' }),
  ),
  memory_mib: Type.Optional(
    Type.Integer({
      minimum: 1,
      default: DEFAULT_MEMORY_MIB,
      description: `The memory in MiB. Default: ${DEFAULT_MEMORY_MIB}.`,
    }),
  ),
  ...networkInput,
  env: Type.Optional(
    Type.Record(Type.String(), Type.String(), {
      description: 'Environment variables of every command. Put no secrets here.',
    }),
  ),
  labels: Type.Optional(labelsInput),
  ephemeral: Type.Optional(
    Type.Boolean({
      default: true,
      description:
        'Whether the sandbox is removed when it stops. Default: true. With false it keeps its disk and can be started again.',
    }),
  ),
  max_duration_secs: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: LONGEST_LIFETIME_SECS,
      default: DEFAULT_LIFETIME_SECS,
      description: `The seconds after which the sandbox is stopped, at most ${LONGEST_LIFETIME_SECS}. Default: ${DEFAULT_LIFETIME_SECS}.`,
    }),
  ),
};

type StartInput = Static<TObject<typeof startFields>>;

/** `more`: further fields of the request. */
export async function startSandboxOf(
  image:
    | { type: 'oci'; reference: string }
    | { type: 'disk_snapshot'; id: string }
    | { type: 'template'; name: string; tag: string },
  input: StartInput,
  { api, progress }: ToolContext,
  more: { pull_policy?: string } = {},
): Promise<CallToolResult> {
  const { name = `agent-${randomBytes(NAME_BYTES).toString('hex')}` } = input;
  progress(`starting ${name}`);
  const body = {
    name,
    image,
    resources: { vcpus: input.vcpus ?? 1, memory_mib: input.memory_mib ?? DEFAULT_MEMORY_MIB },
    network: networkOf(input),
    lifecycle: {
      ephemeral: input.ephemeral ?? true,
      max_duration_secs: input.max_duration_secs ?? DEFAULT_LIFETIME_SECS,
    },
    env: input.env ?? {},
    labels: input.labels ?? {},
    ...more,
  };
  const query = { start: 'true', wait_for: 'running', wait_timeout: String(START_SECS) };
  return shown(await api.json<Sandbox>({ method: 'POST', path: '/v1/sandboxes', query, body }), 'running');
}

/** `wanted`: another status than this one is explained. */
export function shown(sandbox: Sandbox, wanted?: string): CallToolResult {
  const note = wanted === undefined || sandbox.status === wanted ? undefined : noteOn(sandbox, wanted);
  const result = jsonResult({ ...presentSandbox(sandbox), ...(note === undefined ? {} : { note }) });
  return sandbox.status === 'failed' && wanted === 'running' ? { ...result, isError: true } : result;
}

function noteOn({ status }: Sandbox, wanted: string): string {
  if (status === 'failed')
    return 'The start failed: read `last_failure_message`, change what it names, and create the sandbox again.';
  return `The sandbox is not ${wanted} yet. Call get_sandbox in a few seconds: \`status_reason\` and \`last_failure_message\` say what it waits for.`;
}
