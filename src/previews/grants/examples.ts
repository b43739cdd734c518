import { BY_KEY, SANDBOX_ID } from '../../http/example-ids.js';
import type { Examples } from '../../http/examples.js';

const PREVIEW_ID = '01a0a8a3-10f4-7b52-8d0e-5f6a7b8c9d0e';
const ORIGIN = 'http://8080-03gjzvpwgljfh52ucqgk1u8i5.localhost:8081';
const parameters = { sandbox_id: SANDBOX_ID };

const PREVIEW = {
  id: PREVIEW_ID,
  sandbox_id: SANDBOX_ID,
  port: 8080,
  path: '/',
  origin: ORIGIN,
  label: 'review',
  host: 'outer',
  public: false,
  status: 'open',
  created_by: BY_KEY,
  created_at: '2026-11-23T05:20:11.480201Z',
  expires_at: '2026-11-23T06:20:11.480201Z',
  revoked_at: null,
  last_used_at: null,
};
const TOKEN = 'skp_gUt3rQ0pEXAMPLEEXAMPLEEXAMPLEEXAMPLE03';

export const previewExamples: Examples = {
  create_sandbox_preview: {
    parameters,
    body: { port: 8080, ttl_secs: 3600, label: 'review' },
    answer: {
      ...PREVIEW,
      url: `${ORIGIN}/.well-known/sandkeep/open#sandkeep-grant=${TOKEN}`,
      token: TOKEN,
    },
  },
  list_sandbox_previews: { parameters, answer: { data: [PREVIEW], has_more: false, next_cursor: null } },
  get_sandbox_preview: { parameters: { ...parameters, preview_id: PREVIEW_ID }, answer: PREVIEW },
  revoke_sandbox_preview: {
    parameters: { ...parameters, preview_id: PREVIEW_ID },
    answer: { message: 'the preview of port 8080 is revoked' },
  },
};
