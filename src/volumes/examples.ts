import { VOLUME_ID } from '../http/example-ids.js';
import type { Examples } from '../http/examples.js';

const parameters = { id: VOLUME_ID };
const VOLUME = {
  id: VOLUME_ID,
  kind: 'managed',
  name: 'data',
  storage: 'block',
  status: 'active',
  labels: { team: 'ml' },
  capacity_bytes: 10737418240,
  used_bytes: null,
  created_at: '2026-11-23T05:15:49.244416Z',
  updated_at: '2026-11-23T05:15:49.244416Z',
};
const HOST = {
  ...VOLUME,
  id: '01a206d4-e7ba-7219-8a90-dd202c47884c',
  kind: 'host',
  name: null,
  labels: {},
  capacity_bytes: null,
  used_bytes: 52428800,
};

export const volumeExamples: Examples = {
  list_volumes: { answer: [HOST, VOLUME] },
  get_default_volume: { answer: HOST },
  get_volume: { parameters, answer: VOLUME },
  create_volume: {
    body: { name: 'data', labels: { team: 'ml' }, capacity_gib: 10 },
    answer: VOLUME,
  },
  delete_volume: {
    parameters,
    answer: {
      message: 'the volume is scheduled for deletion; its data goes at 2026-11-24T05:15:49.592097Z',
    },
  },
  update_volume: {
    parameters,
    body: { capacity_gib: 20 },
    answer: { ...VOLUME, capacity_bytes: 21474836480, updated_at: '2026-11-23T06:00:00.526676Z' },
  },
  restore_volume: { parameters, answer: { ...VOLUME, updated_at: '2026-11-23T06:00:00.644189Z' } },
};
