import { join } from 'node:path';
import { sleep } from '../../src/lib/sleep.js';
import { serveOnDocker } from '../docker-service.js';
import { checkOutput, WORD, type Side } from './side.js';

interface ServiceOptions {
  name: string;
  directory: string;
  socket: string;
  image: string;
  prepared: number;
  /** The size of a pool that creates take from. */
  pool?: number;
  /** More fields of each create. */
  spec?: object;
}

/** Longer than the preparation of a network. */
const SETTLE_MS = 700;

/** The service, by its API. */
export async function serviceSide({
  name: side,
  directory,
  socket,
  image,
  prepared,
  pool = 0,
  spec,
}: ServiceOptions): Promise<Side> {
  const networks = ['--docker-prepared-networks', `${prepared}`];
  const bounds = ['--rate-limit', '1000000', '--capacity-vcpus', '1000'];
  const data = join(directory, side.replaceAll(/\W+/g, '-'));
  const server = await serveOnDocker(socket, data, [...networks, ...bounds]);
  const call = async (method: string, path: string, body?: object) => {
    const response = await fetch(`http://${server.host}:${server.port}/v1${path}`, {
      method,
      headers: { authorization: `Bearer ${server.key}`, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const answer = (await response.json()) as Record<string, unknown>;
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${JSON.stringify(answer)}`);
    return answer;
  };
  const common = {
    image: { type: 'oci', reference: image },
    pull_policy: 'never',
    resources: { vcpus: 1, memory_mib: 64 },
  };
  if (pool > 0) await call('PUT', '/pools/bench', { ...common, size: pool });
  return {
    name: side,
    async start(name) {
      const { id, status } = (await call('POST', '/sandboxes?start=true&wait_for=running&wait_timeout=60', {
        name,
        ...common,
        ...spec,
      })) as { id: string; status: string };
      if (status !== 'running') throw new Error(`a sandbox is ${status}`);
      return {
        exec: async () =>
          checkOutput(
            String((await call('POST', `/sandboxes/${id}/exec`, { cmd: 'echo', args: [WORD] }))['stdout']),
          ),
        stop: async () => void (await call('POST', `/sandboxes/${id}/stop?wait_for=stopped`)),
        again: async () =>
          void (await call('POST', `/sandboxes/${id}/start?wait_for=running&wait_timeout=60`)),
        remove: async () => void (await call('DELETE', `/sandboxes/${id}`)),
      };
    },
    async settle() {
      const isReady = async () => pool === 0 || (await call('GET', '/pools/bench'))['ready'] === pool;
      while (!(await isReady())) await sleep(SETTLE_MS);
      for (let left = prepared; left >= 0; left -= 1) await sleep(SETTLE_MS);
    },
    close: async () => server.stop(),
  };
}
