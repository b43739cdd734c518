import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { execFileSync } from 'node:child_process';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { table } from '../src/cli/table.js';
import { sleep } from '../src/lib/sleep.js';
import { serveOnDocker } from './docker-service.js';
import { median } from './median.js';
import { Client } from './neighbours/client.js';
import { dockerCli } from './start/docker-cli.js';
import { checkOutput, WORD } from './start/side.js';

export interface TemplatesOptions {
  rounds: number;
  mib: number;
  image: string;
  dockerSocket: string;
}

const TAG = 'sandkeep-bench-template';
const POLL_MS = 20;
const LIMITS = ['--memory', '64m', '--cpus', '1'];

interface Template {
  id: string;
  status: string;
  steps_cached: number;
  error: { message: string } | null;
}

type Times = Record<'cold' | 'cached' | 'start', number[]>;

/**
 * Builds of one Dockerfile with two steps RUN and one COPY: without the cache, and again with it. Then a start from the
 * result, up to the first output. Beside `docker build` and `docker run`, in turns.
 */
export async function templates({ rounds, mib, image, dockerSocket }: TemplatesOptions): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-bench-'));
  const context = join(directory, 'context');
  mkdirSync(context);
  writeFileSync(join(context, 'Dockerfile'), dockerfile(image, mib));
  writeFileSync(join(context, 'file'), 'x'.repeat(1024 * 1024));
  const packed = join(directory, 'context.tar');
  execFileSync('tar', ['-cf', packed, '-C', context, '.']);
  const options = ['--rate-limit', '1000000', '--volume-purge-hours', '0'];
  const server = await serveOnDocker(dockerSocket, join(directory, 'data'), options);
  const client = new Client(`http://${server.host}:${server.port}`, server.key!);
  const docker = dockerCli(dockerSocket);
  const ours: Times = { cold: [], cached: [], start: [] };
  const theirs: Times = { cold: [], cached: [], start: [] };
  try {
    const archive = readFileSync(packed);
    const build = async (cache: boolean) => buildTemplate(client, archive, cache);
    const dockerBuild = async (...more: string[]) =>
      docker('build', '--quiet', '--pull=false', '--tag', TAG, ...more, context);
    // The first start makes the volume of process 1.
    await build(true);
    for (let round = 0; round < rounds; round += 1) {
      await timed(ours.cold, async () => build(false));
      await timed(ours.cached, async () => expectCached(await build(true)));
      await timed(ours.start, async () => startFrom(client, round));
      await timed(theirs.cold, async () => dockerBuild('--no-cache'));
      await timed(theirs.cached, async () => dockerBuild());
      await timed(theirs.start, async () =>
        checkOutput(await docker('run', '--rm', '--init', ...LIMITS, '--pull', 'never', TAG, 'echo', WORD)),
      );
      await client.json('DELETE', `/v1/sandboxes/by-name/round-${round}`);
    }
  } finally {
    await docker('rmi', '--force', TAG).catch(() => '');
    await server.stop();
    rmSync(directory, { recursive: true, force: true });
  }
  const names: [keyof Times, string][] = [
    ['cold', 'build without the cache'],
    ['cached', 'build from the cache'],
    ['start', 'start from it, to first output'],
  ];
  const rows = names.map(([key, name]) => {
    const [mine, other] = [median(ours[key]), median(theirs[key])];
    return [name, mine.toFixed(0), other.toFixed(0), (mine / other).toFixed(2)];
  });
  const head = [`${mib} MiB BY RUN, 1 MiB BY COPY`, 'SANDKEEP ms', 'DOCKER ms', 'RATIO'];
  console.log(table(head, rows));
  console.log(`\nmedians of ${rounds} rounds`);
}

const dockerfile = (image: string, mib: number) => `FROM ${image}
RUN dd if=/dev/zero of=/written bs=1048576 count=${mib}
COPY file /copied
RUN cat /copied > /read
`;

async function timed(times: number[], work: () => Promise<unknown>): Promise<void> {
  const begun = performance.now();
  await work();
  times.push(performance.now() - begun);
}

async function buildTemplate(client: Client, archive: Buffer, cache: boolean): Promise<Template> {
  const sandbox = JSON.stringify({ resources: { vcpus: 1, memory_mib: 64 }, network: { enabled: false } });
  const query = new URLSearchParams({ tag: 'bench:1', cache: String(cache), sandbox }).toString();
  const { text } = await client.call('POST', `/v1/templates?${query}`, { body: archive });
  let template = JSON.parse(text) as Template;
  while (template.status === 'queued' || template.status === 'building') {
    await sleep(POLL_MS);
    template = await client.json<Template>('GET', `/v1/templates/${template.id}`);
  }
  if (template.status !== 'succeeded') throw new Error(template.error?.message ?? text);
  return template;
}

function expectCached({ steps_cached: cached }: Template): void {
  if (cached !== 3) throw new Error(`${cached} steps of 3 were cached`);
}

async function startFrom(client: Client, round: number): Promise<void> {
  const request = {
    name: `round-${round}`,
    image: { type: 'template', name: 'bench', tag: '1' },
    runtime: { cmd: ['sleep', '1000000'] },
    resources: { vcpus: 1, memory_mib: 64 },
    network: { enabled: false },
  };
  const started = '/v1/sandboxes?start=true&wait_for=running&wait_timeout=120';
  const { id } = await client.json<{ id: string }>('POST', started, request);
  const command = { cmd: 'echo', args: [WORD] };
  const { stdout } = await client.json<{ stdout: string }>('POST', `/v1/sandboxes/${id}/exec`, command);
  checkOutput(stdout);
}
