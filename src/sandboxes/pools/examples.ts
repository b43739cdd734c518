import type { Examples } from '../../http/examples.js';

const DIGEST = 'sha256:2b7412e6465c3c7fc5bb21d3e6f1917c167358449fecac8176c6e496e5c1f05f';
const parameters = { name: 'python' };

const POOL = {
  id: '01a0a8a3-10f4-7b52-8d0e-5f6a7b8c9d10',
  name: 'python',
  image: 'python:3.12',
  pull_policy: 'if_missing',
  image_digest: DIGEST,
  resources: { vcpus: 1, memory_mib: 512, disk_size_mib: null },
  network: { enabled: true, ports: [], trust_host_cas: false, policy: null },
  size: 2,
  most: 10,
  ready: 1,
  starting: 1,
  given: 3,
  last_failure_message: null,
  created_at: '2026-11-23T05:20:11.480201Z',
  updated_at: '2026-11-23T05:20:11.480201Z',
};

export const poolExamples: Examples = {
  list_pools: { answer: { data: [POOL], has_more: false, next_cursor: null } },
  put_pool: {
    parameters,
    body: { image: { type: 'oci', reference: 'python:3.12' }, size: 2, most: 10 },
    answer: { ...POOL, image_digest: null, ready: 0, starting: 0, given: 0 },
  },
  get_pool: {
    parameters,
    answer: {
      ...POOL,
      sandboxes: [
        {
          id: '01a0a8a3-10f4-7b52-8d0e-5f6a7b8c9d11',
          name: 'python.4f1sZk9QbX2e',
          status: 'running',
          started_at: '2026-11-23T05:20:12.120433Z',
          image_digest: DIGEST,
        },
        {
          id: '01a0a8a3-10f4-7b52-8d0e-5f6a7b8c9d12',
          name: 'python.Yw03hTq7LmPa',
          status: 'starting',
          started_at: null,
          image_digest: null,
        },
      ],
    },
  },
  delete_pool: { parameters, answer: { message: 'the pool "python" is deleted' } },
};
