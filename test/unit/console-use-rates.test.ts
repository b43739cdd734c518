import { expect, test } from 'vitest';
import type { SandboxMetricsSample } from '../../console/src/lib/api-types.js';
import { ratesOf } from '../../console/src/sandbox/use-rates.js';

const sample = (second: number, more: Partial<SandboxMetricsSample> = {}): SandboxMetricsSample => ({
  timestamp: new Date(second * 1000).toISOString(),
  cpu_percent: second,
  processes: 1,
  memory_bytes: null,
  host_memory_bytes: null,
  disk_bytes: null,
  disk_read_bytes: null,
  disk_write_bytes: null,
  net_rx_bytes: null,
  net_tx_bytes: null,
  ...more,
});

test('rates are bytes a second between two samples, and the first has none', () => {
  const samples = [
    sample(10, { net_rx_bytes: 1000, net_tx_bytes: 0, memory_bytes: 5 }),
    sample(12, { net_rx_bytes: 1500, net_tx_bytes: 0, disk_bytes: 0 }),
    sample(12.5, { net_rx_bytes: 1600, net_tx_bytes: 7 }),
  ];
  expect(ratesOf(samples)).toEqual({
    times: [10, 12, 12.5],
    cpu: [10, 12, 12.5],
    memory: [5, null, null],
    disk: [null, 0, null],
    received: [null, 250, 200],
    sent: [null, 0, 14],
  });
});

test('samples that come twice or late are left out', () => {
  const at = (second: number, bytes: number) => sample(second, { net_rx_bytes: bytes });
  const { times, received } = ratesOf([at(1, 0), at(3, 20), at(3, 20), at(2, 10), at(4, 50)]);
  expect([times, received]).toEqual([
    [1, 3, 4],
    [null, 10, 30],
  ]);
});

test('a new run counts from zero, and a figure that is missing breaks the line', () => {
  const at = (second: number, bytes: number | null) => sample(second, { net_tx_bytes: bytes });
  expect(ratesOf([at(1, 500), at(2, 100), at(3, 300), at(4, null), at(5, 400), at(6, 450)]).sent).toEqual([
    null,
    null,
    200,
    null,
    null,
    50,
  ]);
  expect(ratesOf([])).toEqual({ times: [], cpu: [], memory: [], disk: [], received: [], sent: [] });
});
