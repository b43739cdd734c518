import type { SandboxMetricsSample } from '../lib/api-types.js';

/** The lines of the use of a sandbox. Null: not measured. `received` and `sent`: in bytes a second. */
export interface Rates {
  /** In seconds since 1970. */
  times: readonly number[];
  cpu: readonly (number | null)[];
  memory: readonly (number | null)[];
  disk: readonly (number | null)[];
  received: readonly (number | null)[];
  sent: readonly (number | null)[];
}

/** Samples in the order of their times; those that come twice, or late, are left out. */
export function ratesOf(samples: readonly SandboxMetricsSample[]): Rates {
  const inOrder: { at: number; sample: SandboxMetricsSample }[] = [];
  for (const sample of samples) {
    const at = Date.parse(sample.timestamp) / 1000;
    if (at > (inOrder.at(-1)?.at ?? 0)) inOrder.push({ at, sample });
  }
  const rate = (field: 'net_rx_bytes' | 'net_tx_bytes') =>
    inOrder.map(({ at, sample }, index) => {
      const before = inOrder[index - 1];
      const [now, then] = [sample[field], before?.sample[field]];
      if (before === undefined || now == null || then == null) return null;
      // A new run counts from zero.
      return now < then ? null : (now - then) / (at - before.at);
    });
  return {
    times: inOrder.map(({ at }) => at),
    cpu: inOrder.map(({ sample }) => sample.cpu_percent),
    memory: inOrder.map(({ sample }) => sample.memory_bytes ?? null),
    disk: inOrder.map(({ sample }) => sample.disk_bytes ?? null),
    received: rate('net_rx_bytes'),
    sent: rate('net_tx_bytes'),
  };
}
