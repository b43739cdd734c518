import { v7 as uuidv7 } from 'uuid';
import { operator } from '../../src/events/actor.js';
import { importLines, type ImportResult } from '../../src/import/import.js';
import { createKey } from '../../src/keys/create.js';
import { makeClient, type Client } from './client.js';
import type { TestService } from './service.js';

/** A line of an import file, before it is written down. */
export type Line = { kind: string } & Record<string, any>;

let count = 0;

/** Lines with all that is required; `fields` adds to it and overrides it. */
export const line = {
  org: (fields: Record<string, unknown> = {}): Line => {
    count += 1;
    return { kind: 'org', id: uuidv7(), name: `Org ${count}`, slug: `imported-${count}`, ...fields };
  },
  sandbox: (org: Line, fields: Record<string, unknown> = {}): Line => {
    count += 1;
    return {
      kind: 'sandbox',
      org_id: org['id'],
      id: uuidv7(),
      name: `box-${count}`,
      slug: `box-${count}`,
      status: 'stopped',
      ephemeral: false,
      created_at: '2026-03-01T00:00:00Z',
      ...fields,
    };
  },
  run: (sandbox: Line, fields: Record<string, unknown> = {}): Line => ({
    kind: 'run',
    org_id: sandbox['org_id'],
    id: uuidv7(),
    sandbox_id: sandbox['id'],
    started_at: '2026-03-01T00:00:00Z',
    stopped_at: '2026-03-01T00:01:00Z',
    vcpus: 2,
    memory_mib: 512,
    disk_mib: 1024,
    ...fields,
  }),
  volume: (org: Line, fields: Record<string, unknown> = {}): Line => {
    count += 1;
    return {
      kind: 'volume',
      org_id: org['id'],
      id: uuidv7(),
      volume_kind: 'managed',
      name: `volume-${count}`,
      created_at: '2026-03-01T00:00:00Z',
      ...fields,
    };
  },
  accrual: (volume: Line, fields: Record<string, unknown> = {}): Line => ({
    kind: 'accrual',
    org_id: volume['org_id'],
    volume_id: volume['id'],
    from: '2026-03-01T00:00:00Z',
    to: '2026-03-01T00:01:00Z',
    used_mib: 100,
    ...fields,
  }),
  event: (org: Line, fields: Record<string, unknown> = {}): Line => ({
    kind: 'event',
    id: uuidv7(),
    org_id: org['id'],
    timestamp: '2026-03-01T00:00:00Z',
    category: 'sandbox',
    event_type: 'sandbox_started',
    actor: { kind: 'system', code: 'scheduler', label: 'The scheduler' },
    payload: {},
    ...fields,
  }),
};

export function toText(lines: readonly unknown[]): string {
  return lines.map((value) => `${JSON.stringify(value)}\n`).join('');
}

/** Imports a file of this content, which arrives in chunks that heed no line. */
export async function importText(
  service: TestService,
  content: string | Buffer,
  { skipBad = false, chunk = 64 * 1024 } = {},
): Promise<ImportResult> {
  const bytes = Buffer.from(content);
  async function* chunks(): AsyncGenerator<Buffer> {
    for (let at = 0; at < bytes.length; at += chunk) yield bytes.subarray(at, at + chunk);
    await Promise.resolve();
  }
  return importLines(service.ctx.pool, chunks(), { skipBad });
}

export function importAll(
  service: TestService,
  lines: readonly unknown[],
  options: { skipBad?: boolean; chunk?: number } = {},
): Promise<ImportResult> {
  return importText(service, toText(lines), options);
}

/** A client with a key of an organization that is there. */
export async function clientOf(service: TestService, org: Line): Promise<Client> {
  const { id, name, slug } = org as unknown as Client['org'];
  const { id: keyId, key } = await createKey(service.ctx.pool, id, 'reader', operator('test'));
  return makeClient(service.url, { org: { id, name, slug }, key, keyId });
}

/** All items of a list, page by page. */
export async function listAll(
  client: Client,
  path: string,
  query: Record<string, string | number | string[]> = {},
): Promise<any[]> {
  const items: any[] = [];
  let cursor: string | null = null;
  do {
    const { status, body, text } = await client.get(path, cursor === null ? query : { ...query, cursor });
    if (status !== 200) throw new Error(text);
    items.push(...body.data);
    cursor = body.next_cursor;
  } while (cursor !== null);
  return items;
}
