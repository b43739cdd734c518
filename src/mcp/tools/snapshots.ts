import { Type } from 'typebox';
import type { Page } from '../../lib/page.js';
import type { SnapshotOperation, SnapshotResponse } from '../../snapshots/schema.js';
import { isUuid, sandboxIdOf, sandboxInput } from '../sandbox-path.js';
import { failure, jsonResult, READS, tool } from '../tool.js';
import { untilOver } from '../until-over.js';
import { labelsInput, startFields, startSandboxOf } from './start-sandbox.js';

const LIST = { default: 20, max: 100 };

const snapshotInput = {
  snapshot: Type.String({ minLength: 1, maxLength: 128, description: 'The name or the id of the snapshot.' }),
};

const createSnapshot = tool({
  name: 'create_snapshot',
  title: 'Keep the disk of a sandbox as a snapshot',
  description:
    'Captures the files of a sandbox that runs, or was stopped, under a name. Prepare an environment once, then start many sandboxes from it with start_from_snapshot. A running sandbox is paused for the moment. Memory and processes are not captured. Write files completely before, because unwritten data is lost.',
  scopes: ['sandboxes:write'],
  annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: false },
  input: {
    ...sandboxInput,
    name: Type.String({
      minLength: 1,
      maxLength: 128,
      description: 'The name of the snapshot: letters, digits, `.`, `-` and `_`.',
    }),
    labels: Type.Optional(labelsInput),
  },
  async call({ sandbox, name, labels = {} }, { api, progress }) {
    const sandboxId = await sandboxIdOf(api, sandbox);
    const body = { kind: 'disk', sandbox_id: sandboxId, name, labels };
    progress(`capturing ${sandbox}`);
    const { id } = await api.json<SnapshotOperation>({ method: 'POST', path: '/v1/snapshots', body });
    const operation = await untilOver(() =>
      api.json<SnapshotOperation>({ method: 'GET', path: `/v1/snapshot-operations/${id}` }),
    );
    if (operation.result) return jsonResult(present(operation.result));
    if (operation.status === 'failed')
      return failure(`${operation.error?.message} (${operation.error?.code})`);
    const note = 'The snapshot is not ready yet. Call list_snapshots in some seconds: it lists ready ones.';
    return jsonResult({ snapshot: id, name, status: operation.status, note });
  },
});

const listSnapshots = tool({
  name: 'list_snapshots',
  title: 'List snapshots',
  description: 'Lists the snapshots that are ready, the newest first.',
  scopes: ['sandboxes:read'],
  annotations: READS,
  input: {
    labels: Type.Optional(labelsInput),
    limit: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: LIST.max,
        default: LIST.default,
        description: `The most snapshots of the answer. Default: ${LIST.default}.`,
      }),
    ),
    cursor: Type.Optional(
      Type.String({ description: 'The `next_cursor` of the previous answer, with the same filters.' }),
    ),
  },
  async call({ labels, limit = LIST.default, cursor }, { api }) {
    const query = {
      limit: String(limit),
      ...(labels ? { labels: JSON.stringify(labels) } : {}),
      ...(cursor === undefined ? {} : { cursor }),
    };
    const page = await api.json<Page<SnapshotResponse>>({ method: 'GET', path: '/v1/snapshots', query });
    return jsonResult({ snapshots: page.data.map(present), next_cursor: page.next_cursor });
  },
});

const startFromSnapshot = tool({
  name: 'start_from_snapshot',
  title: 'Create and start a sandbox from a snapshot',
  description:
    'Creates an isolated sandbox whose disk begins as a snapshot, starts it, and waits until it runs. Network, lifetime and removal are as in create_sandbox.',
  scopes: ['sandboxes:write'],
  annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: false },
  input: { ...snapshotInput, ...startFields },
  async call({ snapshot, ...input }, context) {
    return startSandboxOf({ type: 'disk_snapshot', id: snapshot }, input, context);
  },
});

const deleteSnapshot = tool({
  name: 'delete_snapshot',
  title: 'Delete a snapshot',
  description: 'Deletes a snapshot. Sandboxes that were started from it keep their disks.',
  scopes: ['sandboxes:write'],
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false },
  input: snapshotInput,
  async call({ snapshot }, { api }) {
    const part = encodeURIComponent(snapshot);
    const path = `/v1/snapshots/${isUuid(snapshot) ? part : `by-name/${part}`}`;
    return jsonResult(await api.json({ method: 'DELETE', path }));
  },
});

function present({ id, name, status, size_bytes, labels, manifest, created_at }: SnapshotResponse) {
  return {
    snapshot: id,
    name,
    status,
    size_bytes,
    image: manifest.image.ref,
    source_sandbox: manifest.source_sandbox,
    labels,
    created_at,
  };
}

export const SNAPSHOT_TOOLS = [createSnapshot, listSnapshots, startFromSnapshot, deleteSnapshot];
