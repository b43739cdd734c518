import { sleep } from '../src/lib/sleep.js';
import type { Client } from './neighbours/client.js';

interface Operation {
  id: string;
  status: string;
  error: { message: string } | null;
}

const POLL_MS = 20;

/** Makes a snapshot of a sandbox, and returns its id when it is ready. */
export async function captureOf(client: Client, sandboxId: string, name: string): Promise<string> {
  const request = { kind: 'disk', sandbox_id: sandboxId, name };
  let operation = await client.json<Operation>('POST', '/v1/snapshots', request);
  while (operation.status === 'queued' || operation.status === 'in_progress') {
    await sleep(POLL_MS);
    operation = await client.json<Operation>('GET', `/v1/snapshot-operations/${operation.id}`);
  }
  if (operation.status !== 'succeeded') throw new Error(operation.error?.message ?? operation.status);
  return operation.id;
}
