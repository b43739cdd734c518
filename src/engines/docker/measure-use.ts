import type Docker from 'dockerode';
import type { Activity } from '../../engine/runtime.js';
import { readControlGroups } from './control-group-use.js';

interface Measured {
  id: string;
  sandboxId: string;
  pid: number;
}

/** The engine answers a second later, and each answer costs it processor time. */
const ASKED_AT_ONCE = 8;
/** A call that hangs must not hold up the others. */
const STATS_MS = 5_000;

/** The use of containers: from the control groups where this process sees them, otherwise from the engine. */
export async function measureUse(
  docker: Docker,
  containers: readonly Measured[],
): Promise<Map<string, Activity>> {
  const found = new Map<string, Activity>();
  const left = [...containers];
  const work = async () => {
    for (let one = left.pop(); one; one = left.pop()) {
      const use = (await readControlGroups(one.id, one.pid)) ?? (await askEngine(docker, one.id));
      if (use) found.set(one.sandboxId, use);
    }
  };
  await Promise.all(Array.from({ length: ASKED_AT_ONCE }, work));
  return found;
}

async function askEngine(docker: Docker, id: string): Promise<Activity | undefined> {
  const options = Object.assign(
    { stream: false as const, 'one-shot': true },
    { abortSignal: AbortSignal.timeout(STATS_MS) },
  );
  const stats = await docker
    .getContainer(id)
    .stats(options)
    .catch(() => undefined);
  const nanos = stats?.cpu_stats.cpu_usage.total_usage;
  if (nanos === undefined) return undefined;
  // Their declared type has every field, but an engine leaves out the parts that it does not measure.
  const { memory_stats: memory, pids_stats, blkio_stats, networks } = stats as Partial<Docker.ContainerStats>;
  const parts = memory?.stats as Partial<Record<string, number>> | undefined;
  const droppable = parts?.['total_inactive_file'] ?? parts?.['inactive_file'] ?? 0;
  const used = memory?.usage;
  const processes = pids_stats?.current;
  const transfers = blkio_stats?.io_service_bytes_recursive as
    { op: string; value: number }[] | null | undefined;
  const sum = (op: string) =>
    transfers?.reduce((all, entry) => (entry.op.toLowerCase() === op ? all + entry.value : all), 0);
  const ways = networks && Object.values(networks);
  return {
    cpuMicros: nanos / 1_000,
    ...(used === undefined ? {} : { memoryBytes: Math.max(0, used - droppable) }),
    ...(processes === undefined ? {} : { processes }),
    ...(transfers ? { diskReadBytes: sum('read')!, diskWrittenBytes: sum('write')! } : {}),
    ...(ways
      ? {
          receivedBytes: ways.reduce((all, { rx_bytes }) => all + rx_bytes, 0),
          sentBytes: ways.reduce((all, { tx_bytes }) => all + tx_bytes, 0),
        }
      : {}),
  };
}
