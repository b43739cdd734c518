import { BY_KEY, ORG_ID } from '../http/example-ids.js';
import type { Examples } from '../http/examples.js';

const credential_id = '01a206d4-f96a-775b-a087-81aeab380544';
const parameters = { credential_id };

const CREDENTIAL = {
  id: credential_id,
  org_id: ORG_ID,
  pattern: 'ghcr.io/acme',
  username: 'acme-robot',
  description: 'Images of our agents',
  has_password: true,
  created_at: '2026-11-28T15:15:50.506157Z',
  created_by: BY_KEY,
  updated_at: '2026-11-28T15:15:50.506157Z',
};

export const registryCredentialExamples: Examples = {
  list_registry_credentials: {
    parameters: { limit: 20 },
    answer: { data: [CREDENTIAL], has_more: false, next_cursor: null },
  },
  create_registry_credential: {
    body: {
      pattern: CREDENTIAL.pattern,
      username: CREDENTIAL.username,
      password: 'example-token',
      description: CREDENTIAL.description,
    },
    answer: CREDENTIAL,
  },
  get_registry_credential: { parameters, answer: CREDENTIAL },
  update_registry_credential: { parameters, body: { password: 'example-token-2' }, answer: CREDENTIAL },
  delete_registry_credential: { parameters, answer: { message: 'registry credential deleted' } },
  test_registry_credential: {
    parameters,
    body: { reference: 'ghcr.io/acme/app:1' },
    answer: { accepted: true, message: 'ghcr.io has the image, and lets it be pulled' },
  },
};
