import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { run, runJson } from '../cli.js';
import { makeClient, type Client } from '../client.js';
import { containerOf, execIn, SOCKET } from '../docker.js';
import { cleanUp, kill, launch, makeFolder, ready, stop, until, type Served } from '../processes.js';
import { CLIENTS } from './client-image.js';
import type { Internet } from './internet.js';

const AUTHORITY_FILE = '/tmp/authority.pem';

/** The built program on the Docker engine, whose sandboxes resolve names in an internet of a test. */
export class GatedService {
  private readonly ids: string[] = [];

  private constructor(
    private readonly folder: string,
    private readonly internet: Internet,
    private readonly options: readonly string[],
    public served: Served,
    public client: Client,
  ) {}

  static async start(internet: Internet, options: readonly string[] = []): Promise<GatedService> {
    const folder = makeFolder();
    const served = await serve(folder, internet, options);
    return new GatedService(folder, internet, options, served, clientOf(served.url, served.firstKey!));
  }

  get dataDir(): string {
    return this.served.dataDir;
  }

  /** Starts a sandbox with the clients, and returns its id. */
  async create(
    name: string,
    network: object,
    { by = this.client, ...more }: { by?: Client; [field: string]: unknown } = {},
  ): Promise<string> {
    const request = {
      name,
      image: { type: 'oci', reference: CLIENTS },
      pull_policy: 'never',
      runtime: { cmd: ['sleep', '1000000'] },
      resources: { vcpus: 1, memory_mib: 1_024 },
      network,
      ...more,
    };
    const query = { start: true, wait_for: 'running', wait_timeout: 120 };
    const { body, text } = await by.post('/v1/sandboxes', request, query);
    if (body.status !== 'running') throw new Error(`the sandbox does not run: ${text}\n${this.served.err()}`);
    this.ids.push(body.id);
    return body.id;
  }

  /** Runs a script and returns its output with that of standard error. */
  async sh(id: string, script: string): Promise<string> {
    const output = await execIn(id, 'sh', '-c', `exec 2>&1 </dev/null; ${script}`);
    return output.replaceAll('\r\n', '\n').trim();
  }

  /** Runs a program of Node (a module) and returns its output. */
  async node(id: string, program: string): Promise<string> {
    return (await execIn(id, 'node', '--input-type=module', '-e', program)).replaceAll('\r\n', '\n').trim();
  }

  /** Starts a program of Node, whose output `/tmp/background` has. */
  async nodeInBackground(id: string, program: string): Promise<void> {
    await this.sh(id, `cat >/tmp/background.mjs <<'END'\n${program}\nEND`);
    const container = (await containerOf(id))!;
    const command = 'exec node /tmp/background.mjs >/tmp/background 2>&1';
    const exec = await container.exec({ Cmd: ['sh', '-c', command] });
    await exec.start({ Detach: true });
  }

  /** A client of a new organization, which `close` does not clean. */
  async newOrg(slug: string): Promise<Client> {
    const place = ['--data-dir', this.dataDir];
    await runJson(['org', 'create', '--name', slug, '--slug', slug, ...place]);
    const { key } = await runJson(['key', 'create', '--org', slug, '--name', 'test', ...place]);
    return clientOf(this.served.url, key);
  }

  /** Lets the clients of a sandbox trust the authority of the servers. Returns the variables that say so. */
  async trust(id: string): Promise<string> {
    await this.sh(id, `cat >${AUTHORITY_FILE} <<'END'\n${this.internet.authority.root}END`);
    const names = [
      'CURL_CA_BUNDLE',
      'GIT_SSL_CAINFO',
      'NODE_EXTRA_CA_CERTS',
      'PIP_CERT',
      'REQUESTS_CA_BUNDLE',
      'SSL_CERT_FILE',
      'npm_config_cafile',
    ];
    return `export ${names.map((name) => `${name}=${AUTHORITY_FILE}`).join(' ')}`;
  }

  async denied(id: string): Promise<any[]> {
    const { body, text } = await this.client.get(`/v1/sandboxes/${id}/network/denied`);
    if (!Array.isArray(body.data)) throw new Error(`no denials: ${text}`);
    return body.data;
  }

  /** Waits until a denial is as wanted: the service lists them a moment later. */
  async untilDenied(id: string, isWanted: (denial: any) => boolean): Promise<void> {
    await until(`a denial of ${id} is listed`, async () => (await this.denied(id)).some(isWanted));
  }

  async pidOf(id: string): Promise<number> {
    return (await (await containerOf(id))!.inspect()).State.Pid;
  }

  /** The directory of the engine for the container: its configuration and its output. */
  async containerDirectory(id: string): Promise<string> {
    return dirname((await (await containerOf(id))!.inspect()).HostnamePath);
  }

  /** Returns the directory of the files of a new backup. */
  async backUp(): Promise<string> {
    const [archive, files] = [join(this.folder, 'backup.tar.gz'), join(this.folder, 'backup')];
    const { code, err } = await run(['backup', archive, '--data-dir', this.dataDir]);
    if (code !== 0) throw new Error(`the backup failed: ${err}`);
    mkdirSync(files);
    execFileSync('tar', ['-xzf', archive, '-C', files]);
    return files;
  }

  /** The process of the gateway. Undefined while there is none. */
  gatewayPid(): number | undefined {
    const { pid } = this.served;
    for (const thread of readdirSync(`/proc/${pid}/task`)) {
      const children = readFileSync(`/proc/${pid}/task/${thread}/children`, 'utf8')
        .split(' ')
        .filter(Boolean);
      const found = children.find((child) => commandOf(child).includes('gateway'));
      if (found !== undefined) return Number(found);
    }
    return undefined;
  }

  /** Kills the service and starts it again. */
  async restart(signal: NodeJS.Signals): Promise<void> {
    kill(signal, this.served.pid);
    await this.served.exited;
    this.served = await serve(this.folder, this.internet, this.options);
    this.client = clientOf(this.served.url, this.client.key);
  }

  async close(): Promise<void> {
    for (const { id } of (await this.client.get('/v1/sandboxes', { limit: 100 })).body.data) {
      await this.client.delete(`/v1/sandboxes/${id}`);
    }
    await until('the engine has no container of the sandboxes', async () => {
      const left = await Promise.all(this.ids.map(async (id) => containerOf(id)));
      return left.every((container) => container === undefined);
    });
    await stop(this.served);
    const { code, err } = await run([
      'uninstall',
      '--yes',
      '--docker-socket',
      SOCKET,
      '--data-dir',
      this.dataDir,
    ]);
    if (code !== 0) throw new Error(`the objects of the service are left: ${err}`);
    await cleanUp(this.folder);
  }
}

async function serve(folder: string, internet: Internet, options: readonly string[]): Promise<Served> {
  const dataDir = join(folder, 'data');
  const fixed = ['--json', '--port', '0', '--log-level', 'debug', '--runtime', 'docker'];
  const engine = ['--docker-socket', SOCKET, '--docker-prepared-networks', '1'];
  const network = [...engine, '--docker-resolvers', internet.resolver];
  return ready(launch(['serve', ...fixed, ...network, '--data-dir', dataDir, ...options]), dataDir);
}

function clientOf(url: string, key: string): Client {
  return makeClient(url, { org: { id: '', name: '', slug: '' }, key, keyId: '' });
}

function commandOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch {
    return '';
  }
}
