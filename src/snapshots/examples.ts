import { SANDBOX_ID } from '../http/example-ids.js';
import type { Examples } from '../http/examples.js';

const SNAPSHOT_ID = '01a0a8a1-5b6e-7d21-9c1b-6a1f0e4c2d55';
const DIGEST = 'sha256:2b7412e6465c3c7fc5bb21d3e6f1917c167358449fecac8176c6e496e5c1f05f';
const created_at = '2026-11-23T05:20:11.480201Z';
const byId = { id: SNAPSHOT_ID };
const byName = { name: 'nightly' };

const SNAPSHOT = {
  kind: 'disk',
  id: SNAPSHOT_ID,
  name: 'nightly',
  status: 'ready',
  location: { type: 'managed', id: SNAPSHOT_ID },
  sandbox_id: SANDBOX_ID,
  digest: 'sha256:6b0d5b3f0a6f3b4d1f2a9c8e7d6c5b4a39281706f5e4d3c2b1a0f9e8d7c6b5a4',
  size_bytes: 104857600,
  manifest: {
    schema: 1,
    artifact: 'snapshot',
    scope: 'disk',
    created_at,
    parent: null,
    image: { ref: 'python:3.12', manifest_digest: DIGEST },
    source_sandbox: 'builder',
    state: {
      kind: 'file',
      format: 'raw',
      fstype: 'oci-layer',
      upper: { file: 'layer.tar', size_bytes: 104857600, integrity: null },
    },
    labels: { team: 'ml' },
    extensions: {},
    requires: [],
  },
  labels: { team: 'ml' },
  created_by: { kind: 'api_key', api_key_id: '01a0a8a3-10f4-7b52-8d0e-5f6a7b8c9d15', name: 'ci' },
  created_at,
  purge_at: null,
};

const QUEUED = {
  id: SNAPSHOT_ID,
  kind: 'disk',
  status: 'queued',
  name: 'nightly',
  sandbox_id: SANDBOX_ID,
  sandbox_name: 'builder',
  result: null,
  error: null,
  created_at,
  updated_at: created_at,
  completed_at: null,
};
const ended = '2026-11-23T05:20:13.120433Z';
const SUCCEEDED = {
  ...QUEUED,
  status: 'succeeded',
  result: SNAPSHOT,
  updated_at: ended,
  completed_at: ended,
};
const message =
  'the snapshot "nightly" is scheduled for deletion; its data goes at 2026-11-24T05:20:11.480201Z';

const pageOf = (item: object) => ({ data: [item], has_more: false, next_cursor: null });

export const snapshotExamples: Examples = {
  create_snapshot: {
    body: { kind: 'disk', sandbox_id: SANDBOX_ID, name: 'nightly', labels: { team: 'ml' } },
    answer: QUEUED,
  },
  list_snapshots: { answer: pageOf(SNAPSHOT) },
  get_snapshot: { parameters: byId, answer: SNAPSHOT },
  get_snapshot_by_name: { parameters: byName, answer: SNAPSHOT },
  delete_snapshot: { parameters: byId, answer: { message } },
  delete_snapshot_by_name: { parameters: byName, answer: { message } },
  restore_snapshot: { parameters: byId, answer: SNAPSHOT },
  export_snapshot: { parameters: byId, answer: 'the bytes of the archive' },
  export_snapshot_by_name: { parameters: byName, answer: 'the bytes of the archive' },
  import_snapshot: {
    parameters: { name: 'imported', labels: '{"team":"ml"}' },
    body: 'the bytes of an archive',
    status: 400,
    answer: {
      error: {
        code: 'invalid_request',
        message:
          'the archive cannot be imported: the body is no archive of an image: a layer is shorter than a header of an archive; if it is compressed, uncompress it first; send one image, as "docker save" or the export of a snapshot writes it',
        details: null,
      },
    },
  },
  list_snapshot_candidates: {
    answer: pageOf({
      id: SANDBOX_ID,
      name: 'builder',
      slug: 'builder-x7k2',
      status: 'stopped',
      image: 'python:3.12',
      created_at,
    }),
  },
  list_snapshot_operations: { answer: pageOf(SUCCEEDED) },
  get_snapshot_operation: { parameters: byId, answer: SUCCEEDED },
};
