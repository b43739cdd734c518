import type Docker from 'dockerode';
import { randomUUID } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { PassThrough } from 'node:stream';
import { ExplainedError } from '../../src/lib/explained-error.js';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import type { Internet } from '../../test/support/internet/internet.js';
import type { Server } from '../speed/processes.js';
import type { Proxy } from './proxy.js';

/** A way from a sandbox to the web server. */
export interface Path {
  name: string;
  /** The process that carries the traffic. Undefined: only the kernel does. */
  pid: number | undefined;
  run(task: object): Promise<Record<string, number>>;
  close(): Promise<void>;
}

interface Surroundings {
  server: Server;
  docker: Docker;
  internet: Internet;
  host: string;
  mitmproxy: Proxy | undefined;
  haproxy: Proxy | undefined;
  image: string;
}

const LOAD = readFileSync(join(PACKAGE_ROOT, 'bench/network/load.mjs'), 'utf8');
/** As long as the value of the secret, so that every way sends the same bytes. */
const PLACEHOLDER = 'placeholder-bench';
const VALUE = 'value-of-the-bench';

/** The first is the direct one. */
export async function makePaths({
  server,
  docker,
  internet,
  host,
  mitmproxy,
  haproxy,
  image,
}: Surroundings): Promise<Path[]> {
  const api = new Api(server);
  const open = { rules: [allow('any')], default_egress: 'deny' };
  const named = { rules: [allow({ domain: host })] };
  const secrets = {
    entries: [
      {
        env_var: 'API_KEY',
        value: VALUE,
        placeholder: PLACEHOLDER,
        allowed_hosts: [{ type: 'exact', value: host }],
      },
    ],
  };
  const tls = { upstream_ca_cert: [internet.authority.root] };
  const sandboxes: [name: string, network: object][] = [
    ['direct, without any rule by domain', { policy: open }],
    ['spliced, a rule by domain', { policy: named }],
    ['decrypted, a secret', { policy: named, secrets, tls }],
  ];
  const paths: Path[] = [];
  let direct: string | undefined;
  for (const [name, network] of sandboxes) {
    const id = await api.create(image, network);
    direct ??= id;
    paths.push({
      name,
      pid: direct === id ? undefined : gatewayOf(server.pid),
      run: (task) => load(docker, id, { ...task, host, header: `Bearer ${PLACEHOLDER}` }),
      close: () => api.remove(id),
    });
  }
  const through = (name: string, { pid, host: address, port }: Proxy, to?: string) =>
    paths.push({
      name,
      pid,
      run: (task) =>
        load(docker, direct!, {
          ...task,
          host,
          proxy: { host: address, port, to },
          header: `Bearer ${PLACEHOLDER}`,
        }),
      close: () => Promise.resolve(),
    });
  if (haproxy) through(`HAProxy ${haproxy.version}, TCP without rules`, haproxy);
  if (mitmproxy) through(`decrypted by mitmproxy ${mitmproxy.version}`, mitmproxy, internet.address(10));
  return paths;
}

function allow(destination: unknown): object {
  return { direction: 'egress', action: 'allow', destination };
}

/** The gateway of a service is a child of its process. */
function gatewayOf(service: number): number {
  for (const thread of readdirSync(`/proc/${service}/task`)) {
    const children = readFileSync(`/proc/${service}/task/${thread}/children`, 'utf8')
      .split(' ')
      .filter(Boolean);
    const found = children.find((pid) => readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('gateway'));
    if (found !== undefined) return Number(found);
  }
  throw new ExplainedError('the service has no gateway; the engine of the bench needs root and nft');
}

async function load(docker: Docker, sandboxId: string, task: object): Promise<Record<string, number>> {
  const filters = { label: [`dev.sandkeep.sandbox=${sandboxId}`] };
  const [found] = await docker.listContainers({ filters });
  const exec = await docker.getContainer(found!.Id).exec({
    Cmd: ['node', '--input-type=module', '-e', LOAD, JSON.stringify(task)],
    AttachStdout: true,
    AttachStderr: true,
  });
  const stream = await exec.start({});
  const [output, errors] = [new PassThrough(), new PassThrough()];
  docker.modem.demuxStream(stream, output, errors);
  stream.on('end', () => {
    output.end();
    errors.end();
  });
  const [result, failure] = await Promise.all([text(output), text(errors)]);
  if (!result.startsWith('{')) throw new Error(`the load of ${JSON.stringify(task)} failed: ${failure}`);
  return JSON.parse(result) as Record<string, number>;
}

class Api {
  constructor(private readonly server: Server) {}

  async create(image: string, network: object): Promise<string> {
    const { id } = (await this.call('POST', '/v1/sandboxes?start=true&wait_for=running', {
      name: `bench-${randomUUID().slice(0, 8)}`,
      image: { type: 'oci', reference: image },
      pull_policy: 'never',
      runtime: { cmd: ['sleep', '1000000'] },
      resources: { vcpus: 2, memory_mib: 1_024 },
      network,
    })) as { id: string };
    return id;
  }

  async remove(id: string): Promise<void> {
    await this.call('DELETE', `/v1/sandboxes/${id}`);
  }

  private async call(method: string, path: string, body?: object): Promise<unknown> {
    const { host, port, key } = this.server;
    const response = await fetch(`http://${host}:${port}${path}`, {
      method,
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      ...(body ? { body: JSON.stringify(body) } : {}),
    });
    const answer: unknown = await response.json().catch(() => undefined);
    if (!response.ok) throw new ExplainedError(`${method} ${path}: ${JSON.stringify(answer)}`);
    return answer;
  }
}
