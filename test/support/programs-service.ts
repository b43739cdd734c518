import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request as httpsRequest } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium, type Page } from 'playwright-core';
import { Authority } from './certificates.js';
import { makeClient, type Client } from './client.js';
import { docker, SOCKET } from './docker.js';
import { cleanUp, launch, makeFolder, ready, stop, until } from './processes.js';

const DOMAIN = 'preview.test';

interface Preview {
  url: string;
  origin: string;
  token: string;
}

/** A service with previews of a domain of its own, and a sandbox with servers. */
export interface ProgramsService {
  client: Client;
  sandbox: string;
  /** A folder for the files of the test, with the certificate of the authority in `ca.pem`. */
  files: string;
  open(port: number, more?: object): Promise<Preview>;
  /** The answer to a GET. */
  get(preview: Preview, path?: string): Promise<{ status: number; text: string }>;
  /** Runs `work` in a browser that finds the domain on this machine. */
  inBrowser(work: (page: Page) => Promise<void>): Promise<void>;
  close(): Promise<void>;
}

/** Resolves when the command listens on each of the ports. */
export async function startPrograms(
  image: string,
  command: string,
  ports: number[],
): Promise<ProgramsService> {
  const files = mkdtempSync(join(tmpdir(), 'sandkeep-programs-'));
  const folder = makeFolder();
  const authority = new Authority();
  const { cert, key } = authority.issue({ names: [`*.${DOMAIN}`] });
  const write = (name: string, text: string) => {
    const file = join(files, name);
    writeFileSync(file, text, { mode: 0o600 });
    return file;
  };
  const ca = write('ca.pem', authority.root);
  const previews = ['--preview-host', '127.0.0.1', '--preview-port', '0', '--preview-domain', DOMAIN];
  const tls = ['--preview-tls-cert', write('cert.pem', cert), '--preview-tls-key', write('key.pem', key)];
  const runtime = ['--runtime', 'docker', '--docker-socket', SOCKET, '--docker-network', 'none'];
  const args = ['serve', '--json', '--port', '0', '--data-dir', folder, '--log-level', 'warn'];
  const service = await ready(launch([...args, ...previews, ...tls, ...runtime]), folder);
  const org = { id: '', name: '', slug: '' };
  const client = makeClient(service.url, { org, key: service.firstKey!, keyId: '' });
  const request = {
    name: 'programs',
    image: { type: 'oci', reference: image },
    pull_policy: 'never',
    runtime: { cmd: ['sh', '-c', command], workdir: '/app' },
    resources: { vcpus: 2, memory_mib: 1_024 },
  };
  const { body } = await client.post('/v1/sandboxes', request, { start: true, wait_for: 'running' });
  const sandbox = body.id as string;

  const open = async (port: number, more: object = {}): Promise<Preview> =>
    (await client.post(`/v1/sandboxes/${sandbox}/previews`, { port, ...more })).body;
  const get = async ({ origin, token }: Preview, path = '/') => {
    const { host, hostname, port } = new URL(origin);
    const headers = { host, authorization: `Bearer ${token}` };
    const trust = { servername: hostname, ca: readFileSync(ca) };
    const sent = httpsRequest({ host: '127.0.0.1', port, path, ...trust, headers, agent: false });
    sent.end();
    const [answer] = await once(sent, 'response');
    let text = '';
    for await (const chunk of answer) text += String(chunk);
    return { status: answer.statusCode as number, text };
  };
  const close = async () => {
    await client.delete(`/v1/sandboxes/${sandbox}`);
    const label = [`dev.sandkeep.sandbox=${sandbox}`];
    const left = () => docker.listContainers({ all: true, filters: { label } });
    await until('the container is gone', async () => (await left()).length === 0);
    await stop(service);
    await cleanUp(folder);
    rmSync(files, { recursive: true });
  };
  try {
    for (const port of ports) {
      const preview = await open(port);
      await until(`port ${port} listens`, async () => {
        const { status, text } = await get(preview);
        // A server of gRPC gives a request of HTTP/1.1 no valid answer.
        return status < 500 || text.includes('gave no valid answer');
      });
    }
  } catch (error) {
    await close();
    throw error;
  }
  return {
    client,
    sandbox,
    files,
    open,
    get,
    async inBrowser(work) {
      const flags = [
        '--no-sandbox',
        '--disable-dev-shm-usage',
        `--host-resolver-rules=MAP *.${DOMAIN} 127.0.0.1`,
      ];
      // Chromium gives up requests when the machine gets or loses an interface, as each container of another test does.
      for (let attempt = 1; ; attempt += 1) {
        const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: flags });
        let hasNetworkChanged = false;
        try {
          const page = await browser.newPage({ ignoreHTTPSErrors: true });
          page.on('requestfailed', (failed) => {
            hasNetworkChanged ||= failed.failure()?.errorText === 'net::ERR_NETWORK_CHANGED';
          });
          return await work(page);
        } catch (error) {
          if (!hasNetworkChanged || attempt === 5) throw error;
        } finally {
          await browser.close();
        }
      }
    },
    close,
  };
}
