import { SANDBOX_ID } from '../../http/example-ids.js';
import type { Examples } from '../../http/examples.js';

const SAMPLE = {
  timestamp: '2026-11-23T05:20:16.204Z',
  cpu_percent: 12.5,
  memory_bytes: 48234496,
  host_memory_bytes: 214958080,
  disk_bytes: 1048576,
  disk_read_bytes: 8192,
  disk_write_bytes: 1064960,
  net_rx_bytes: 5321,
  net_tx_bytes: 2210,
  processes: 3,
};

const metrics = {
  answer: {
    sandbox_id: SANDBOX_ID,
    sample_interval_ms: 1000,
    unavailable_reason: null,
    cpu_limit_percent: 200,
    memory_limit_bytes: 1073741824,
    disk_limit_bytes: null,
    current: SAMPLE,
    history_interval_ms: 30000,
    history: [SAMPLE],
  },
};
const stream = { answer: `event: sample\ndata: ${JSON.stringify(SAMPLE)}\n\n` };
const id = { parameters: { sandbox_id: SANDBOX_ID } };
const name = { parameters: { name: 'web' } };

export const metricsExamples: Examples = {
  get_sandbox_metrics: { ...id, ...metrics },
  get_sandbox_metrics_by_name: { ...name, ...metrics },
  stream_sandbox_metrics: { ...id, ...stream },
  stream_sandbox_metrics_by_name: { ...name, ...stream },
};
