import type { CreateSandboxRequest } from '../../src/spec/specification.js';

/** The size of a data set. Every sandbox has ten runs. */
export interface DataSet {
  /** The counts of the first organization, which is measured. */
  sandboxes: number;
  events: number;
  /** The number of other organizations, with a hundredth of the sandboxes and a thousandth of the events each. */
  others: number;
}

export const RUNS_EACH = 10;
/** A smaller store would not fill a page. */
const FEWEST_SANDBOXES = 200;
const FEWEST_EVENTS = 5_000;

/** 1: an organization with 100,000 sandboxes, 1,000,000 runs and 10,000,000 events, and nine small ones. */
export function dataSetOf(scale: number): DataSet {
  return {
    sandboxes: Math.max(FEWEST_SANDBOXES, Math.round(100_000 * scale)),
    events: Math.max(FEWEST_EVENTS, Math.round(10_000_000 * scale)),
    others: 9,
  };
}

/** The small store shows whether a request takes longer in a large one. */
export const SMALL: DataSet = { sandboxes: 1_000, events: 1_000, others: 0 };

export function smaller({ sandboxes, events }: DataSet): DataSet {
  return {
    sandboxes: Math.max(10, Math.round(sandboxes / 100)),
    events: Math.max(10, Math.round(events / 1_000)),
    others: 0,
  };
}

/** The labels of list filters, and the share of sandboxes with them. */
export const LABELS = {
  /** Half. */
  common: { env: 'prod' },
  /** Twelve, in a store of any size. */
  rare: { pilot: 'yes' },
  /** A tenth has the first, a tenth the second, none has both. */
  apart: { gpu: 'a100', zone: 'eu-north-1' },
} as const;
const RARE = 12;

/** The labels of the sandbox at `index` out of `count`, the newest first. */
export function labelsOf(index: number, count: number): Record<string, string> {
  return {
    team: `team-${index % 20}`,
    app: `app-${index % 50}`,
    owner: `user-${index % 500}`,
    env: index % 2 === 0 ? 'prod' : 'dev',
    ...(index % Math.ceil(count / RARE) === 0 ? { pilot: 'yes' } : {}),
    ...(index % 10 === 3 ? { gpu: 'a100' } : {}),
    ...(index % 10 === 7 ? { zone: 'eu-north-1' } : {}),
  };
}

/** A request in the style of a platform for agents: its resolved specification has three kilobytes. */
export function requestOf(name: string, labels: Record<string, string>): CreateSandboxRequest {
  return {
    name,
    labels,
    image: {
      type: 'oci',
      reference: `registry.example.com/agents/workbench:2026.11@sha256:${'b7'.repeat(32)}`,
    },
    resources: { vcpus: 2, memory_mib: 2048 },
    runtime: {
      entrypoint: ['/usr/bin/tini', '--', '/opt/agent/bin/start'],
      cmd: ['--listen', '0.0.0.0:8080', '--workspace', '/workspace', '--log-format', 'json'],
      user: '1000:1000',
      workdir: '/workspace',
      shell: '/bin/bash',
      hostname: name,
      scripts: {
        setup:
          '#!/bin/bash\nset -euo pipefail\ngit clone --depth 1 "$REPOSITORY" /workspace\ncd /workspace && npm ci\n',
        check: '#!/bin/bash\ncd /workspace && npm run -s check && npm test\n',
      },
    },
    env: [
      'REPOSITORY',
      'BRANCH',
      'TASK',
      'MODEL',
      'TRACE_PARENT',
      'CACHE_URL',
      'PROXY_URL',
      'TELEMETRY_URL',
    ].map((key) => ({ key, value: `https://${key.toLowerCase().replace('_', '-')}.example.com/${name}` })),
    rlimits: [
      { resource: 'nofile', soft: 65_536, hard: 65_536 },
      { resource: 'nproc', soft: 4_096, hard: 4_096 },
    ],
    mounts: [{ type: 'tmpfs', guest: '/tmp', size_mib: 512, options: { nosuid: true, nodev: true } }],
    network: {
      enabled: true,
      policy: {
        default_egress: 'deny',
        default_ingress: 'deny',
        rules: ['registry.npmjs.org', 'pypi.org', 'github.com', 'api.example.com', 'cache.example.com'].map(
          (domain) => ({
            ...({ direction: 'egress', destination: { domain_suffix: domain }, action: 'allow' } as const),
            ports: [{ start: 443, end: 443 }],
            protocols: ['tcp'] as ['tcp'],
          }),
        ),
      },
    },
    lifecycle: { ephemeral: false, idle_timeout_secs: 1_800, max_duration_secs: 28_800 },
  };
}
