import type { Examples } from '../http/examples.js';

const TEMPLATE_ID = '01a0a8b2-5b6e-7d21-9c1b-6a1f0e4c2d55';
const DOCKERFILE = 'FROM python:3.12\nENV MODE=agent\nCMD ["python", "main.py"]\n';
const created_at = '2026-11-23T05:20:11.480201Z';
const byId = { id: TEMPLATE_ID };

const QUEUED = {
  id: TEMPLATE_ID,
  name: 'agent',
  tag: '1',
  status: 'queued',
  steps: 0,
  steps_done: 0,
  steps_cached: 0,
  error: null,
  config: null,
  size_bytes: null,
  snapshot_id: null,
  digest: null,
  dockerfile: DOCKERFILE,
  target: null,
  context_digest: null,
  sandbox_id: null,
  labels: {},
  created_by: { kind: 'api_key', api_key_id: '01a0a8a3-10f4-7b52-8d0e-5f6a7b8c9d15', name: 'ci' },
  created_at,
  started_at: null,
  completed_at: null,
};
const SUCCEEDED = {
  ...QUEUED,
  status: 'succeeded',
  config: {
    env: [{ key: 'MODE', value: 'agent' }],
    workdir: null,
    user: null,
    cmd: ['python', 'main.py'],
    entrypoint: null,
    labels: {},
    exposed: [],
  },
  size_bytes: 104857600,
  snapshot_id: '01a0a8b3-1c20-7a44-8f10-2b7c9d0e1f63',
  digest: 'sha256:3f79bb7b435b05321651daefd374cdc681dc06faa65e374e38337b88ca046dea',
  started_at: created_at,
  completed_at: '2026-11-23T05:20:43.120433Z',
};

export const templateExamples: Examples = {
  create_template: {
    parameters: { tag: 'agent:1' },
    body: DOCKERFILE,
    answer: QUEUED,
  },
  list_templates: { answer: { data: [SUCCEEDED], has_more: false, next_cursor: null } },
  get_template: { parameters: byId, answer: SUCCEEDED },
  follow_template_log: {
    parameters: byId,
    answer: `: following\n\nevent: log\nid: 1\ndata: {"source":"build","ts":"${created_at}","text":"FROM python:3.12\\n"}\n\nevent: end\ndata: {"status":"succeeded"}\n\n`,
  },
  delete_template: { parameters: byId, answer: { message: 'the template "agent:1" is deleted' } },
};
