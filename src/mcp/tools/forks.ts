import { Type } from 'typebox';
import { Words } from '../../http/schema.js';
import { MOST_COPIES, type ForkOperation, type ForkRequest } from '../../snapshots/forks/schema.js';
import { sandboxInput, sandboxPath } from '../sandbox-path.js';
import { jsonResult, READS, tool, type ToolContext } from '../tool.js';
import { untilOver } from '../until-over.js';
import { labelsInput } from './start-sandbox.js';

const forkSandbox = tool({
  name: 'fork_sandbox',
  title: 'Make copies of a sandbox',
  description:
    'Makes copies of a sandbox that runs, or was stopped, and starts them: each begins with its files. Use it to try several ways from one prepared state. All copies are made, or none. A running sandbox is paused for the moment. Memory, processes, secrets and ports are not copied.',
  scopes: ['sandboxes:write'],
  annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: false },
  input: {
    ...sandboxInput,
    count: Type.Integer({ minimum: 1, maximum: MOST_COPIES, description: 'The number of copies.' }),
    name_prefix: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 120,
        description:
          'The copies are named by this text and a number, such as `attempt-1`. Default: the name of the sandbox.',
      }),
    ),
    labels: Type.Optional(labelsInput),
    volumes: Type.Optional(
      Words(['share', 'copy'], {
        description:
          'Needed if the sandbox mounts volumes. `share`: the copies mount the same ones. `copy`: each copy gets volumes of its own with the same files, which are kept when it is deleted.',
      }),
    ),
  },
  async call({ sandbox, count, name_prefix, labels, volumes }, { api, progress }) {
    const body: ForkRequest = {
      count,
      ...(name_prefix === undefined ? {} : { name_prefix }),
      ...(labels ? { labels } : {}),
      ...(volumes ? { volumes } : {}),
    };
    progress(`copying ${sandbox}`);
    const { id } = await api.json<ForkOperation>({
      method: 'POST',
      path: `${sandboxPath(sandbox)}/fork`,
      body,
    });
    return result(await untilOver(() => getOperation(api, id)));
  },
});

const getFork = tool({
  name: 'get_fork',
  title: 'Get the copies of a sandbox',
  description: 'Returns the progress of a fork_sandbox, and the copies that exist with their statuses.',
  scopes: ['sandboxes:read'],
  annotations: READS,
  input: { fork: Type.String({ format: 'uuid', description: 'The `fork` of the result of fork_sandbox.' }) },
  async call({ fork }, { api }) {
    return result(await getOperation(api, fork));
  },
});

function getOperation(api: ToolContext['api'], id: string): Promise<ForkOperation> {
  return api.json({ method: 'GET', path: `/v1/fork-operations/${id}` });
}

function result({ id, status, count, error, sandboxes }: ForkOperation) {
  const note = noteOn(status);
  const shown = jsonResult({ fork: id, status, count, error, sandboxes, ...(note ? { note } : {}) });
  return status === 'failed' ? { ...shown, isError: true } : shown;
}

function noteOn(status: ForkOperation['status']): string | undefined {
  if (status === 'failed') return 'There are no copies: change what `error` names, and fork again.';
  if (status === 'succeeded') return undefined;
  return 'The disk is not captured yet, and the copies start afterwards. Call get_fork in some seconds.';
}

export const FORK_TOOLS = [forkSandbox, getFork];
