import { ORG_ID, SANDBOX_ID } from '../http/example-ids.js';
import type { Example, Examples } from '../http/examples.js';

const id = { sandbox_id: SANDBOX_ID };
const name = { name: 'web' };

const CREATED = {
  name: 'web',
  image: { type: 'oci', reference: 'python:3.12' },
  resources: { vcpus: 2, memory_mib: 1024 },
  runtime: { cmd: ['python', '-m', 'http.server'], workdir: '/srv' },
  env: [{ key: 'PORT', value: '8000' }],
  labels: { team: 'ml' },
  lifecycle: { max_duration_secs: 3600 },
};

const RUNNING = {
  id: SANDBOX_ID,
  org_id: ORG_ID,
  name: 'web',
  slug: 'lively-pine-uiaj',
  status: 'running',
  ephemeral: false,
  created_at: '2026-11-23T05:15:46.207392Z',
  last_failure_message: null,
  spec: {
    resources: { vcpus: 2, memory_mib: 1024, disk_size_mib: null },
    runtime: {
      cmd: ['python', '-m', 'http.server'],
      entrypoint: null,
      user: null,
      workdir: '/srv',
      shell: null,
      scripts: {},
      log_level: null,
      hostname: null,
      metrics_sample_interval_ms: 1000,
      disable_metrics_sample: false,
    },
    env: [{ key: 'PORT', value: '8000' }],
    labels: { team: 'ml' },
    rlimits: [],
    lifecycle: { ephemeral: false, idle_timeout_secs: null, max_duration_secs: 3600 },
    mounts: [],
    network: {
      enabled: true,
      ports: [],
      trust_host_cas: false,
      max_connections: null,
      policy: null,
      secrets: [],
    },
    image: 'python:3.12',
  },
  started_at: '2026-11-23T05:15:46.450275Z',
  stopped_at: null,
  status_reason: null,
  stop_reason: null,
  stop_message: null,
  paused_at: null,
  image_digest: 'sha256:73aaf090f3d85aa34ee199857f03fa3a95c8ede2ffd4cc2cdb5b94e566b11662',
  runtime: 'docker',
  source: null,
};

const STOPPED = { ...RUNNING, status: 'stopped', stopped_at: '2026-11-23T05:20:03.834270Z' };

const wait = { wait_for: 'running', wait_timeout: 90 };
const get = { answer: RUNNING };
const update = {
  body: { labels: { team: 'web' } },
  answer: { ...RUNNING, spec: { ...RUNNING.spec, labels: { team: 'web' } } },
};
const start = { parameters: wait, answer: { ...STOPPED, status: 'running', stopped_at: null } };
const stop = {
  parameters: { wait_for: 'stopped', wait_timeout: 30 },
  answer: STOPPED,
};
const PAUSED = { ...STOPPED, stop_reason: 'paused', paused_at: '2026-11-23T05:20:03.834270Z' };
const pause = { parameters: { wait_for: 'paused', wait_timeout: 30 }, answer: PAUSED };
const resume = { parameters: wait, answer: { ...RUNNING, started_at: '2026-11-23T05:20:09.117204Z' } };
const restart = { parameters: wait, answer: { ...RUNNING, started_at: '2026-11-23T05:20:09.117204Z' } };
const remove = { answer: { message: 'the sandbox "web" is deleted' } };
const logs = {
  parameters: { sources: 'stdout,stderr' },
  answer:
    'event: log\nid: AAGaC9…\ndata: {"source":"stdout","ts":"2026-11-23T05:15:46.600000Z","text":"Serving HTTP on 0.0.0.0 port 8000"}\n\n',
};

function addressed(operation: string, parameters: Record<string, string>, example: Example): Examples {
  return { [operation]: { ...example, parameters: { ...parameters, ...example.parameters } } };
}

const takesWebSocket = {
  status: 400,
  answer: {
    error: {
      code: 'invalid_request',
      message: 'this address takes a WebSocket: send an upgrade request',
      details: null,
    },
  },
};

export const sandboxExamples: Examples = {
  list_sandboxes: {
    parameters: { labels: '{"team":"ml"}', limit: 20 },
    answer: { data: [RUNNING], has_more: false, next_cursor: null },
  },
  summarize_sandboxes: {
    answer: {
      created: 2,
      starting: 1,
      waiting: 0,
      running: 7,
      stopping: 0,
      stopped: 31,
      failed: 1,
      hours: [{ hour: '2026-11-23T05:00:00Z', started: 9, failed: 1 }],
    },
  },
  create_sandbox: { parameters: { start: true, ...wait }, body: CREATED, answer: RUNNING },
  ...addressed('get_sandbox', id, get),
  ...addressed('get_by_name', name, get),
  ...addressed('update_sandbox', id, update),
  ...addressed('update_sandbox_by_name', name, update),
  ...addressed('start_sandbox', id, start),
  ...addressed('start_by_name', name, start),
  ...addressed('stop_sandbox', id, stop),
  ...addressed('stop_by_name', name, stop),
  ...addressed('pause_sandbox', id, pause),
  ...addressed('pause_by_name', name, pause),
  ...addressed('resume_sandbox', id, resume),
  ...addressed('resume_by_name', name, resume),
  ...addressed('restart_sandbox', id, restart),
  ...addressed('restart_sandbox_by_name', name, restart),
  ...addressed('delete_sandbox', id, remove),
  ...addressed('delete_by_name', name, remove),
  ...addressed('follow_sandbox_logs', id, logs),
  ...addressed('follow_sandbox_logs_by_name', name, logs),
  open_sandbox_agent: { parameters: id, ...takesWebSocket },
  connect_sandbox_port: { parameters: { ...id, port: 8_000 }, ...takesWebSocket },
  connect_sandbox_port_by_name: { parameters: { ...name, port: 8_000 }, ...takesWebSocket },
};
