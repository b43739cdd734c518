import { v7 as uuidv7 } from 'uuid';
import { operator } from '../../src/audit/events/actor.js';
import { importLines, type ImportResult } from '../../src/import/import.js';
import { createKey } from '../../src/keys/create.js';
import { makeClient, type Client } from './client.js';
import type { TestService } from './service.js';

/** A line of an import file as an object. */
export type Line = { kind: string } & Record<string, any>;

let count = 0;

/** Lines with all required fields; `fields` adds to them and overrides them. */
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

const options = { nodev: true, noexec: false, nosuid: true, readonly: false };
const sharing = { options, stat_virtualization: 'relaxed', host_permissions: 'mirror' };

/** A spec with every field and every variant. */
export const FULL_SPEC = {
  resources: { vcpus: 4, memory_mib: 2048, disk_size_mib: 10_240 },
  runtime: {
    cmd: ['python', '-m', 'http.server'],
    entrypoint: ['/bin/sh', '-c'],
    hostname: 'builder',
    user: '1000:1000',
    workdir: '/work',
    shell: '/bin/bash',
    scripts: { start: '#!/bin/sh\necho "hi"\n', stop: 'kill\t1' },
    log_level: 'trace',
    metrics_sample_interval_ms: 9_007_199_254_740_991,
    disable_metrics_sample: true,
  },
  env: [
    { key: 'PATH', value: '/bin' },
    { key: 'EMPTY', value: '' },
  ],
  labels: { team: 'ml', größe: '☃ 𝒳 "quoted" \\ back\nslash', constructor: 'c', __proto_: 'p' },
  rlimits: [
    { resource: 'Nofile', soft: 1024, hard: 4096 },
    { resource: 'Rttime', soft: 0, hard: 0 },
  ],
  lifecycle: { ephemeral: true, idle_timeout_secs: 60, max_duration_secs: null },
  mounts: [
    { type: 'Bind', guest: '/src', ...sharing, quota_mib: 5 },
    { type: 'Named', guest: '/data', ...sharing },
    { type: 'Tmpfs', guest: '/tmp', options: { ...options, noexec: true }, size_mib: 64 },
    { type: 'DiskImage', guest: '/disk', format: 'Vmdk', options, fstype: 'ext4' },
  ],
  network: {
    enabled: true,
    ports: [
      { guest_port: 80, host_port: 8080, host_bind: '127.0.0.1', protocol: 'tcp' },
      { guest_port: 53, host_port: 0, host_bind: '::1' },
    ],
    trust_host_cas: true,
    dns: { nameservers: ['1.1.1.1', 'dns.example:5353'], query_timeout_ms: 250, rebind_protection: false },
    interface: {
      ipv4_address: '10.0.0.2',
      ipv4_pool: '10.0.0.0/24',
      ipv6_address: 'fd00::2',
      ipv6_pool: null,
      mac: [2, 0, 255, 1, 2, 3],
      mtu: 9000,
    },
    max_connections: 100,
    policy: {
      default_egress: 'deny',
      default_ingress: 'allow',
      rules: [
        { direction: 'egress', destination: 'any', action: 'deny' },
        { direction: 'any', destination: { cidr: '10.0.0.0/8' }, action: 'allow', ports: [] },
        { direction: 'ingress', destination: { domain: 'example.com' }, action: 'allow', protocols: ['tcp'] },
        {
          direction: 'egress',
          destination: { domain_suffix: 'example.org' },
          action: 'allow',
          ports: [{ start: 80, end: 443 }],
          protocols: ['udp', 'icmpv4', 'icmpv6'],
        },
        { direction: 'egress', destination: { group: 'link_local' }, action: 'deny' },
      ],
    },
    secrets: [
      {
        env_var: 'TOKEN',
        placeholder: '$TOKEN',
        allowed_hosts: [{ type: 'exact', value: 'api.example.com' }, { type: 'any' }],
        injection: { headers: true, cookies: false },
        on_violation: { type: 'block' },
      },
      { env_var: 'BARE', placeholder: '', allowed_hosts: [], injection: {} },
    ],
    tls: {
      enabled: true,
      intercepted_ports: [443, 8443],
      bypass: ['*.internal'],
      verify_upstream: false,
      upstream_ca_cert: ['/ca.pem'],
      scoped_upstream_ca_cert: [{ pattern: '*.corp', path: '/corp.pem' }],
      scoped_verify_upstream: [{ pattern: 'old.corp', verify: false }],
      block_quic_on_intercept: true,
      cache: { capacity: 10, validity_hours: 1 },
      intercept_ca: { cert_path: '/c', key_path: null },
    },
  },
  image: 'python:3.12',
};

/** A spec that writes out the defaults of the API, so that it is shown unchanged. */
export const BARE_SPEC = {
  resources: { vcpus: 1, memory_mib: 512 },
  runtime: { metrics_sample_interval_ms: 1000, disable_metrics_sample: false },
  env: [],
  labels: {},
  rlimits: [],
  lifecycle: { ephemeral: false },
  mounts: [],
  network: { enabled: false, ports: [], trust_host_cas: false },
};

/** The answer of the API for a line of a sandbox. */
export function shown({ kind: _kind, removed_at: _removed, ...fields }: Line) {
  return {
    last_failure_message: null,
    spec: null,
    started_at: null,
    stopped_at: null,
    status_reason: null,
    stop_reason: null,
    stop_message: null,
    paused_at: null,
    command: null,
    image_digest: null,
    disk_snapshot_id: null,
    runtime: null,
    source: null,
    ...fields,
  };
}

export function toText(lines: readonly unknown[]): string {
  return lines.map((value) => `${JSON.stringify(value)}\n`).join('');
}

/** Imports a file with this content, in chunks that split lines. */
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

/** A client with a key of an existing organization. */
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

/** The imported events, without those about the import and about the key that reads them. */
export function importedEvents(client: Client, query: Record<string, string | number> = {}): Promise<any[]> {
  return listAll(client, '/v1/events', { event_type: ['!api_key_created', '!history_imported'], ...query });
}
