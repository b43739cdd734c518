/** Uses the generated client for operations that the official clients lack. Prints one line for each answer. */
import { createClient, entries, SandkeepError, type Schemas } from '@sandkeep/client';

declare const process: { env: Record<string, string> };
declare const console: { log(...words: unknown[]): void };

const client = createClient({ url: process.env['SANDKEEP_URL']!, key: process.env['SANDKEEP_API_KEY']! });

const created = await client.POST('/v1/sandboxes', {
  params: { query: { start: true, wait_for: 'running' } },
  body: { name: 'box', image: { type: 'oci', reference: 'busybox' } },
});
const sandbox: Schemas['WrittenSandboxResponse'] = created.data!;
console.log('sandbox', sandbox.status);

const usage = await client.GET('/v1/billing/usage', {});
console.log('usage', typeof usage.data?.total_cents);

const types = new Set<string>();
const page = (cursor: string | undefined) =>
  client.GET('/v1/events', { params: { query: { cursor, limit: 1 } } });
for await (const { event_type } of entries(page)) types.add(event_type);
console.log('events', types.has('sandbox_requested') || types.size > 2);

const preview = await client.POST('/v1/sandboxes/{sandbox_id}/previews', {
  params: { path: { sandbox_id: sandbox.id } },
  body: { port: 8000 },
});
console.log('preview', preview.data?.port);

const pool = await client.PUT('/v1/pools/{name}', {
  params: { path: { name: 'warm' } },
  body: { image: { type: 'oci', reference: 'busybox' }, size: 0 },
});
console.log('pool', pool.data?.name);

const snapshots = await client.GET('/v1/snapshots', {});
console.log('snapshots', snapshots.data?.data.length);

// @ts-expect-error -- the types know the fields of a request
const misspelt: Schemas['PutPoolRequest'] = { image: { type: 'oci', reference: 'busybox' }, sizes: 1 };
void misspelt;

try {
  await client.GET('/v1/sandboxes/by-name/{name}', { params: { path: { name: 'none' } } });
} catch (error) {
  if (!(error instanceof SandkeepError)) throw error;
  console.log('refusal', error.status, error.code, error.requestId !== null);
}
