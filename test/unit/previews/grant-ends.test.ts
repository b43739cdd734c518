import { connect } from 'node:http2';
import { Duplex } from 'node:stream';
import { describe, expect, it, onTestFinished } from 'vitest';
import { Certificate } from '../../../src/http/tls/certificate.js';
import type { PreviewWaker } from '../../../src/previews/types.js';
import { PortRefusedError } from '../../../src/sandboxes/ports/guest-stream.js';
import { Authority, pairFiles } from '../../support/certificates.js';
import { until as poll } from '../../support/polling.js';
import {
  httpSandbox,
  rawSandbox,
  startPreviews,
  type PreviewOptions,
  type TestPreviews,
} from '../../support/previews.js';
import { openRaw } from '../../support/raw-connection.js';

const until = (isSo: () => boolean) => poll(() => Promise.resolve(isSo()), Boolean);
const authority = new Authority();
const silent = { info: () => undefined, warn: () => undefined, error: () => undefined };
const certificate = () => new Certificate(pairFiles(authority.issue({ names: ['localhost'] })), silent);

/** A request of each kind; `closed` resolves when its connection or stream is closed. */
const KINDS: Record<string, (previews: TestPreviews) => Promise<{ closed: Promise<unknown> }>> = {
  'a request': (previews) => raw(previews, 'GET / HTTP/1.1'),
  'a body': (previews) =>
    raw(previews, 'POST / HTTP/1.1', 'Connection: close\r\nContent-Length: 9', '\r\nhalf'),
  'an upgrade': (previews) => raw(previews, 'GET / HTTP/1.1', 'Connection: Upgrade\r\nUpgrade: websocket'),
  'a stream of HTTP/2': (previews) => stream(previews, {}),
  'a call of gRPC': (previews) => stream(previews, { ':method': 'POST', 'content-type': 'application/grpc' }),
};

async function raw({ port, host }: TestPreviews, line: string, headers = 'Connection: close', body = '') {
  const { socket, whole } = await openRaw(`http://127.0.0.1:${port}`);
  socket.write(`${line}\r\nHost: ${host}\r\n${headers}\r\n${body || '\r\n'}`);
  return { closed: whole };
}

async function stream({ port, host }: TestPreviews, headers: object) {
  const session = connect(`https://localhost:${port}`, { ca: authority.root, servername: 'localhost' });
  session.on('error', () => undefined);
  onTestFinished(() => session.destroy());
  const opened = session.request({ ':path': '/', ':authority': host, ...headers }, { endStream: false });
  opened.on('error', () => undefined).resume();
  return Promise.resolve({ closed: new Promise((resolve) => opened.once('close', resolve)) });
}

const start = (kind: string, options: PreviewOptions) =>
  startPreviews(
    rawSandbox(() => undefined),
    { ...options, ...(/HTTP.2|gRPC/.test(kind) ? { certificate: certificate() } : {}) },
  );

describe.each(Object.entries(KINDS))('%s ends with its grant', (kind, send) => {
  it('while the port opens', async () => {
    let open = (_stream: Duplex) => {};
    const port = new Promise<Duplex>((resolve) => (open = resolve));
    const previews = await start(kind, { openPort: () => port });
    const { closed } = await send(previews);
    await until(() => previews.meters.open === 1);
    previews.revoke();
    await closed;
    const late = new Duplex({ read: () => undefined, write: (_chunk, _encoding, done) => done() });
    open(late);
    // A client of gRPC keeps its connection to the port for further calls.
    await until(() => previews.meters.open === 0 && (late.destroyed || kind === 'a call of gRPC'));
    expect(previews.grantListeners()).toBe(0);
  });

  it('while the server answers', async () => {
    const previews = await start(kind, {});
    const { closed } = await send(previews);
    await until(() => previews.opened() === 1 && previews.grantListeners() > 0);
    previews.revoke();
    await closed;
    await until(() => previews.meters.open === 0);
    expect(previews.grantListeners()).toBe(0);
  });

  it('while the server of a sandbox that has started does not listen yet', async () => {
    let tries = 0;
    const waker: PreviewWaker = {
      patienceOf: () => 30_000,
      wait: () => Promise.resolve(),
      listensUntil: () => Promise.resolve(performance.now() + 30_000),
      page: () => Promise.resolve(),
    };
    const stopped = { wakes: true, status: 'stopped' };
    let listens = false;
    const openPort: PreviewOptions['openPort'] = ({ port }) => {
      tries += 1;
      if (!listens) return Promise.reject(new PortRefusedError(port));
      return Promise.resolve(
        new Duplex({ read: () => undefined, write: (_chunk, _encoding, done) => done() }),
      );
    };
    const previews = await start(kind, { waker, target: stopped, openPort });
    const { closed } = await send(previews);
    await until(() => tries > 0);
    previews.revoke();
    listens = true;
    await closed;
    await until(() => previews.meters.open === 0);
    expect(previews.meters.outcomes).not.toContain('upgraded');
  });
});

it('a grant is in use while its request waits for the start of the sandbox', async () => {
  let start = () => {};
  const started = new Promise<void>((resolve) => (start = resolve));
  const waker: PreviewWaker = {
    patienceOf: () => 30_000,
    wait: () => started,
    listensUntil: () => Promise.resolve(performance.now()),
    page: () => Promise.resolve(),
  };
  const sandbox = httpSandbox((_request, response) => response.end('awake'));
  const previews = await startPreviews(sandbox, { waker, target: { status: 'stopped' } });
  const { socket, text } = await openRaw(`http://127.0.0.1:${previews.port}`);
  socket.write(`GET / HTTP/1.1\r\nHost: ${previews.host}\r\n\r\n`);
  await until(() => previews.meters.open === 1);
  expect(previews.grantListeners()).toBeGreaterThan(0);
  start();
  await until(() => text().includes('awake') && previews.grantListeners() === 0);
});
