/**
 * Each direction of a sandbox's network. The kernel adds the bytes of a second to the burst. TCP keeps the full rate
 * with a burst of this size, also over a round trip of 100 ms.
 */
export const BANDWIDTH = { burstBytes: 64 * 1_024 * 1_024, packetsPerSecond: 50_000 };
/** A larger bandwidth than the default is also reached with packets of 625 bytes. */
const PACKETS_PER_MBIT = 200;
const BYTES_PER_MBIT = 125_000;

/** Statements for one direction. They drop packets, and accept none. `mbits`: a second; 0: no limit. */
export function bandwidthRules(mbits: number): string[] {
  if (mbits === 0) return [];
  const packets = Math.max(BANDWIDTH.packetsPerSecond, mbits * PACKETS_PER_MBIT);
  return [
    `limit rate over ${packets}/second burst ${packets} packets drop`,
    `limit rate over ${mbits * BYTES_PER_MBIT} bytes/second burst ${BANDWIDTH.burstBytes} bytes drop`,
  ];
}
