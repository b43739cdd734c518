import Docker from 'dockerode';
import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { table } from '../src/cli/table.js';
import { ExplainedError } from '../src/lib/explained-error.js';
import { serveOnDocker } from './docker-service.js';
import { ChannelClient, channelSide } from './exec/channel.js';
import { engineSide } from './exec/engine.js';
import type { Outcome, Side } from './exec/side.js';
import { cpuMicros, ownMib, type Server } from './speed/processes.js';

const MIB = 1024 * 1024;
const BYTES = 100 * MIB;
const IDLE_SESSIONS = 500;
/** Several sandboxes share the idle sessions, so that no single one reaches its limits. */
const IDLE_SANDBOXES = 4;

export interface ExecOptions {
  image: string;
  rounds: number;
  runs: number;
  dockerSocket: string;
}

/** Compares commands over the agent channel with the engine's own exec, in turns, in one container. */
export async function exec({ image, rounds, runs, dockerSocket: socketPath }: ExecOptions): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-bench-'));
  const server = await serveOnDocker(socketPath, directory, ['--rate-limit', '1000000']);
  try {
    const api = new Api(server);
    const ids: string[] = [];
    for (let index = 0; index < IDLE_SANDBOXES; index += 1) ids.push(await api.create(image));
    try {
      const docker = new Docker({ socketPath });
      const containers = await docker.listContainers();
      const container = containers.find(({ Labels }) => Object.values(Labels).includes(ids[0]!));
      if (!container) throw new Error('the engine does not list the container of the sandbox');
      const sides = [engineSide(docker, container.Id), channelSide(api.address, api.key, ids[0]!)] as const;
      await compareTimes(sides, rounds, runs);
      await measureIdleSessions(api, ids, server);
      await compareThroughput(sides, rounds, server);
    } finally {
      for (const id of ids) await api.remove(id);
    }
  } finally {
    await server.stop();
    rmSync(directory, { recursive: true, force: true });
  }
}

/** Times from the first step of a client to the exit and to the first byte, with 1 and 16 clients at once. */
async function compareTimes(sides: readonly [Side, Side], rounds: number, runs: number): Promise<void> {
  const rows: string[][] = [];
  for (const atOnce of [1, 16]) {
    const times = sides.map(() => ({ exit: [] as number[], firstByte: [] as number[] }));
    for (const side of sides) await side.run(['true']);
    for (let round = 0; round < rounds; round += 1) {
      for (const [index, side] of sides.entries()) {
        const { exit, firstByte } = times[index]!;
        exit.push(...(await repeat(side, ['true'], runs, atOnce)).map(({ ms }) => ms));
        const outputs = await repeat(side, ['echo', 'x'], runs, atOnce);
        firstByte.push(...outputs.map(({ firstByteMs }) => firstByteMs));
      }
    }
    for (const measure of ['exit', 'firstByte'] as const) {
      const [floor, ours] = times.map((each) => quantiles(each[measure]));
      const name = measure === 'exit' ? 'exit of true' : 'first byte of echo';
      rows.push([
        `${name}, ${atOnce} at once`,
        ...floor!.map(ms),
        ...ours!.map(ms),
        ratio(ours![0] / floor![0]),
      ]);
    }
  }
  const head = ['COMMAND', 'ENGINE p50 ms', 'p90', 'CHANNEL p50 ms', 'p90', 'TO THE ENGINE ≤1.25'];
  console.log(`${table(head, rows)}\n`);
}

async function repeat(side: Side, args: string[], runs: number, atOnce: number): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  const client = async () => {
    for (let run = 0; run < Math.ceil(runs / atOnce); run += 1) outcomes.push(checked(await side.run(args)));
  };
  await Promise.all(Array.from({ length: atOnce }, client));
  return outcomes;
}

async function compareThroughput(
  sides: readonly [Side, Side],
  rounds: number,
  { pid }: Server,
): Promise<void> {
  const measures: Record<string, (side: Side) => Promise<Outcome>> = {
    out: async (side) => {
      const outcome = await side.run(['head', '-c', String(BYTES), '/dev/zero']);
      if (outcome.bytes !== BYTES) throw new Error(`${side.name} delivered ${outcome.bytes} bytes`);
      return outcome;
    },
    in: (side) => side.send(['sh', '-c', `test $(wc -c) = ${BYTES}`], BYTES),
  };
  const rows: string[][] = [];
  for (const [name, measure] of Object.entries(measures)) {
    const rates = sides.map(() => [] as number[]);
    const cpu: number[] = [];
    for (let round = 0; round < rounds; round += 1) {
      for (const [index, side] of sides.entries()) {
        const before = cpuMicros(pid);
        const { ms: duration } = checked(await measure(side));
        rates[index]!.push(BYTES / MIB / (duration / 1000));
        if (index === 1) cpu.push((cpuMicros(pid) - before) / (BYTES / MIB));
      }
    }
    const [floor, ours] = rates.map((each) => quantiles(each)[0]);
    rows.push([
      `100 MiB ${name}`,
      floor!.toFixed(0),
      ours!.toFixed(0),
      ratio(ours! / floor!),
      (quantiles(cpu)[0] / 1000).toFixed(1),
    ]);
  }
  const head = ['DATA', 'ENGINE MiB/s', 'CHANNEL MiB/s', 'OF THE ENGINE ≥0.7', 'CPU ms/MiB OF THE SERVICE'];
  console.log(table(head, rows));
}

async function measureIdleSessions(api: Api, ids: readonly string[], { pid }: Server): Promise<void> {
  const before = ownMib(pid).pss;
  const clients: ChannelClient[] = [];
  for (let index = 0; index < IDLE_SESSIONS; index += 1) {
    const client = await ChannelClient.open(api.address, api.key, ids[index % ids.length]!);
    await client.idle();
    clients.push(client);
  }
  const more = ownMib(pid).pss - before;
  console.log(
    `${IDLE_SESSIONS} idle sessions take ${more.toFixed(0)} MiB more in the service (target: under 60)`,
  );
  await Promise.all(clients.map((client) => client.close()));
}

class Api {
  readonly address: string;
  readonly key: string;

  constructor({ host, port, key }: Server) {
    this.address = `http://${host}:${port}`;
    this.key = key ?? '';
  }

  async create(image: string): Promise<string> {
    const { id } = (await this.call('POST', '/v1/sandboxes?start=true&wait_for=running', {
      name: `bench-${randomUUID().slice(0, 8)}`,
      image: { type: 'oci', reference: image },
      runtime: { cmd: ['sleep', '1000000'] },
      resources: { vcpus: 1, memory_mib: 512 },
    })) as { id: string };
    return id;
  }

  async remove(id: string): Promise<void> {
    await this.call('DELETE', `/v1/sandboxes/${id}`);
  }

  private async call(method: string, path: string, body?: object): Promise<unknown> {
    const response = await fetch(this.address + path, {
      method,
      headers: { authorization: `Bearer ${this.key}`, 'content-type': 'application/json' },
      ...(body ? { body: JSON.stringify(body) } : {}),
    });
    const answer: unknown = await response.json().catch(() => undefined);
    if (!response.ok) throw new ExplainedError(`${method} ${path}: ${JSON.stringify(answer)}`);
    return answer;
  }
}

function checked(outcome: Outcome): Outcome {
  if (outcome.code !== 0) throw new Error(`a command exited with ${outcome.code}`);
  return outcome;
}

function quantiles(values: readonly number[]): [p50: number, p90: number] {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (share: number) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]!;
  return [at(0.5), at(0.9)];
}

const ms = (value: number) => value.toFixed(1);
const ratio = (value: number) => value.toFixed(2);
