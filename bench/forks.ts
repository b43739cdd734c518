import { cpus } from 'node:os';
import { table } from '../src/cli/table.js';
import { startSlots } from '../src/engines/docker/engine-info.js';
import { SlotQueue } from '../src/fairness/slot-queue.js';
import { sleep } from '../src/lib/sleep.js';
import { median } from './median.js';
import type { Client } from './neighbours/client.js';
import { dockerCli } from './start/docker-cli.js';
import { checkOutput, WORD } from './start/side.js';

const SETTLE_MS = 200;
const POLL_MS = 20;

interface Operation {
  id: string;
  status: string;
  sandboxes: { id: string; status: string }[];
}

interface Source {
  sandboxId: string;
  containerId: string;
}

export interface ForkTimes {
  /** The first copy has printed. */
  first: number[];
  /** All copies have printed. */
  all: number[];
}

/**
 * From the request to the first output of a command in each of `copies` copies: a fork beside `docker commit` and as
 * many `docker run`, in turns. The engine makes all of them at once, and then as many at once as the service does.
 */
export async function forks(
  client: Client,
  socket: string,
  source: Source,
  { rounds, copies }: { rounds: number; copies: number },
): Promise<void> {
  const fork: ForkTimes = { first: [], all: [] };
  const commit: ForkTimes = { first: [], all: [] };
  const paced: ForkTimes = { first: [], all: [] };
  const { each: atOnce } = startSlots(cpus().length);
  for (let round = 0; round < rounds; round += 1) {
    await forkOnce(client, source, copies, fork);
    await commitOnce(socket, source, { count: copies, atOnce: copies }, commit);
    await commitOnce(socket, source, { count: copies, atOnce }, paced);
  }
  const row = (name: string, { first, all }: ForkTimes) => [
    name,
    ...[first, all].map((ms) => median(ms).toFixed(0)),
  ];
  const rows = [
    row('fork', fork),
    row('docker commit and run', commit),
    row(`docker commit and run, ${atOnce} at once`, paced),
  ];
  console.log(`\n${table([`${copies} COPIES TO FIRST OUTPUT`, 'FIRST, P50 ms', 'ALL, P50 ms'], rows)}`);
  const [ratio, ofPaced] = [commit, paced].map(({ all }) => (median(fork.all) / median(all)).toFixed(2));
  console.log(
    `\nfork / docker commit and run: ${ratio}, with ${atOnce} at once: ${ofPaced}, by ${rounds} rounds`,
  );
}

/** Notes when the first and the last one of `starts` has printed. */
async function timed(times: ForkTimes, begun: number, starts: Promise<void>[]): Promise<void> {
  let isFirst = true;
  const noted = starts.map(async (start) => {
    await start;
    if (isFirst) times.first.push(performance.now() - begun);
    isFirst = false;
  });
  await Promise.all(noted);
  times.all.push(performance.now() - begun);
}

export async function forkOnce(
  client: Client,
  { sandboxId }: Pick<Source, 'sandboxId'>,
  count: number,
  times: ForkTimes,
): Promise<void> {
  const kept = async () => (await client.json<{ snapshots: number }>('GET', '/v1/quotas')).snapshots;
  const before = await kept();
  const begun = performance.now();
  const { id: forkId, sandboxes } = await client.json<Operation>('POST', `/v1/sandboxes/${sandboxId}/fork`, {
    count,
  });
  const output = async (id: string) => {
    const { stdout } = await client.json<{ stdout: string }>('POST', `/v1/sandboxes/${id}/exec`, {
      cmd: 'echo',
      args: [WORD],
    });
    checkOutput(stdout);
  };
  const begins = new Map<string, () => void>();
  const outputs = sandboxes.map(async ({ id }) => {
    await new Promise<void>((resolve) => begins.set(id, resolve));
    return output(id);
  });
  const all = timed(times, begun, outputs);
  for (let left = count; left > 0; await sleep(POLL_MS)) {
    const { status, sandboxes: copies } = await client.json<Operation>(
      'GET',
      `/v1/fork-operations/${forkId}`,
    );
    if (status === 'failed') throw new Error('the fork has failed');
    for (const { id, status: state } of copies) if (state === 'running') begins.get(id)!();
    left = copies.filter(({ status: state }) => state !== 'running').length;
  }
  await all;
  for (const { id } of sandboxes) await client.json('DELETE', `/v1/sandboxes/${id}`);
  // Removals would slow the other side down.
  while ((await kept()) > before) await sleep(SETTLE_MS);
}

const TAG = 'sandkeep-bench-commit:forks';

async function commitOnce(
  socket: string,
  { containerId }: Source,
  { count, atOnce }: { count: number; atOnce: number },
  times: ForkTimes,
): Promise<void> {
  const docker = dockerCli(socket);
  const slots = new SlotQueue({ total: atOnce, each: atOnce });
  const names = Array.from({ length: count }, (_, index) => `sandkeep-bench-fork-${index}`);
  const limits = ['--init', '--memory', '256m', '--cpus', '1', '--pull', 'never'];
  const begun = performance.now();
  await docker('commit', containerId, TAG);
  const output = async (name: string) => {
    await docker('run', '-d', '--name', name, ...limits, '--entrypoint', 'sleep', TAG, '600');
    checkOutput(await docker('exec', name, 'echo', WORD));
  };
  try {
    await timed(
      times,
      begun,
      names.map(async (name) => slots.run('', async () => output(name))),
    );
  } finally {
    await docker('rm', '-f', ...names);
    await docker('rmi', TAG);
  }
}
