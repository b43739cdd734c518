import { SANDBOX_ID } from '../http/example-ids.js';
import type { Example, Examples } from '../http/examples.js';

const SNAPSHOT_ID = '01a0a8a1-5b6e-7d21-9c1b-6a1f0e4c2d55';
const OPERATION_ID = '01a0a8a1-6c0f-7b8e-8f3a-1d2e3c4b5a69';

const unsupported: Example = {
  status: 501,
  answer: {
    error: {
      code: 'not_supported',
      message:
        'this service has no snapshots: keep files in a volume, or build an image, and create sandboxes with it',
      details: null,
    },
  },
};
const ofSnapshot: Example = { ...unsupported, parameters: { id: SNAPSHOT_ID } };
const ofName: Example = { ...unsupported, parameters: { name: 'nightly' } };

export const unsupportedExamples: Examples = {
  create_snapshot: { ...unsupported, body: { kind: 'disk', sandbox_id: SANDBOX_ID, name: 'nightly' } },
  list_snapshots: unsupported,
  get_snapshot: ofSnapshot,
  delete_snapshot: ofSnapshot,
  get_snapshot_by_name: ofName,
  delete_snapshot_by_name: ofName,
  list_snapshot_candidates: unsupported,
  list_snapshot_operations: unsupported,
  get_snapshot_operation: { ...unsupported, parameters: { id: OPERATION_ID } },
};
