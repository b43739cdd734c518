import { createHash } from 'node:crypto';
import { expect } from 'vitest';
import type { Client } from './client.js';
import { until } from './polling.js';
import { smallRequest } from './sandbox-requests.js';

export type Operation = Record<string, any>;

/** Waits until an operation has ended. */
export async function ended(client: Client, id: string): Promise<Operation> {
  return until(
    async () => (await client.get(`/v1/snapshot-operations/${id}`)).body,
    ({ status }) => status === 'succeeded' || status === 'failed',
    60_000,
  );
}

/** Waits until an operation that forks a sandbox has ended. */
export async function forked(client: Client, id: string): Promise<Operation> {
  return until(
    async () => (await client.get(`/v1/fork-operations/${id}`)).body,
    ({ status }) => status === 'succeeded' || status === 'failed',
    60_000,
  );
}

/** Makes a snapshot, and returns its operation when it has ended. */
export async function capture(
  client: Client,
  sandboxId: string,
  name: string,
  part: object = {},
): Promise<Operation> {
  const request = { kind: 'disk', sandbox_id: sandboxId, name, ...part };
  const { status, body, text } = await client.post('/v1/snapshots', request);
  if (status !== 200) throw new Error(`no snapshot is made: ${text}`);
  return ended(client, body.id);
}

export const RUNNING = { start: true, wait_for: 'running' } as const;

/** Starts a small sandbox, and returns its id. */
export async function startSmall(
  client: Client,
  name: string,
  part: Record<string, unknown> = {},
): Promise<string> {
  const { body, text } = await client.post('/v1/sandboxes', smallRequest(name, part), RUNNING);
  expect(body.status, text).toBe('running');
  return body.id;
}

/** The request for a sandbox from a snapshot, by its id or name. */
export const fromSnapshot = (name: string, id: string, part: object = {}) => ({
  source: 'disk_snapshot',
  disk_snapshot_ref: { type: 'managed', id },
  name,
  resources: { vcpus: 1, memory_mib: 64 },
  ...part,
});

/** The types of the events about a resource, the oldest first. */
export async function typesOf(client: Client, resource: string): Promise<string[]> {
  const { body } = await client.get('/v1/events', { resource_id: resource, limit: 100 });
  return body.data.map(({ event_type }: { event_type: string }) => event_type).toReversed();
}

/** The digest of a descriptor as clients compute it: the fields and labels sorted as they declare them. */
export function clientDigest(manifest: Record<string, any>): string {
  const order =
    'schema artifact scope created_at parent image source_sandbox state labels extensions requires'.split(
      ' ',
    );
  const labels = Object.entries(manifest['labels'] as Record<string, string>)
    .map(([key, value]) => [Buffer.from(key), key, value] as const)
    .toSorted(([a], [b]) => a.compare(b))
    .map(([, key, value]) => `${JSON.stringify(key)}:${JSON.stringify(value)}`);
  const image = manifest['image'] as Record<string, string>;
  const { kind, format, fstype, upper } = manifest['state'] as Record<string, any>;
  const texts: Record<string, string> = {
    image: JSON.stringify({ ref: image['ref'], manifest_digest: image['manifest_digest'] }),
    state: JSON.stringify({
      kind,
      format,
      fstype,
      upper: {
        file: upper.file,
        size_bytes: upper.size_bytes,
        integrity: upper.integrity && {
          algorithm: upper.integrity.algorithm,
          digest: upper.integrity.digest,
        },
      },
    }),
    labels: `{${labels.join(',')}}`,
  };
  const fields = order.map((name) => `"${name}":${texts[name] ?? JSON.stringify(manifest[name])}`);
  return `sha256:${createHash('sha256')
    .update(`{${fields.join(',')}}`)
    .digest('hex')}`;
}
