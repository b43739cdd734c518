import { request as httpRequest } from 'node:http';
import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { WebSocket } from 'ws';
import { TrustedProxies } from '../../src/http/client-address.js';
import { NO_METERS } from '../../src/lib/meters.js';
import { microsOf } from '../../src/lib/instant.js';
import { newId } from '../../src/lib/uuid.js';
import { answerError } from '../../src/previews/answer.js';
import { PREVIEW_LIMITS } from '../../src/previews/bounds.js';
import { ApiError } from '../../src/http/errors.js';
import { PreviewHosts } from '../../src/previews/host.js';
import { PreviewListener } from '../../src/previews/listener.js';
import { Serving } from '../../src/previews/serve.js';
import type { PreviewAccess } from '../../src/previews/types.js';
import { openWaker } from '../../src/previews/wake/preview-waker.js';
import { openPort } from '../../src/sandboxes/ports/open-port.js';
import { launch, testInBrowser } from '../console/browser.js';
import type { Client } from '../support/client.js';
import { destroyAll, onDocker } from '../support/docker-service.js';
import { describeDocker, IMAGE, makeImage } from '../support/docker.js';
import { until, untilStatus } from '../support/polling.js';
import { startTestService, type TestService } from '../support/service.js';

/** Listens at once. */
const SERVER = 'echo hello > /tmp/index.html; exec busybox httpd -f -p 8000 -h /tmp';
/** Accepts a WebSocket, and sends the message "woken". */
const SOCKET = `exec busybox nc -ll -p 8000 -e sh -c '
while read -r line; do
  line="\${line%?}"
  case "$line" in "") break ;; [Ss]ec-[Ww]eb[Ss]ocket-[Kk]ey:*) key="\${line#*: }" ;; esac
done
sum=$(printf %s258EAFA5-E914-47DA-95CA-C5AB0DC85B11 "$key" | busybox sha1sum)
accept=$(printf %s "\${sum%% *}" | busybox xxd -r -p | busybox base64)
printf "HTTP/1.1 101 Switching Protocols\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\n"
printf "Sec-WebSocket-Accept: %s\\r\\n\\r\\n\\201\\005woken" "$accept"
exec cat >/dev/null'`;

describeDocker('a sandbox that wakes on request', () => {
  let service: TestService;
  let client: Client;
  let hosts: PreviewHosts;
  let port: number;
  let closePreviews: () => Promise<void>;

  beforeAll(async () => {
    makeImage();
    service = await startTestService({ ...onDocker(), settings: { stopGraceMs: 0 } });
    client = await service.newOrg();
    hosts = new PreviewHosts('localhost', 'http', undefined);
    [port, closePreviews] = await listen();
  });
  afterAll(async () => {
    await closePreviews();
    await destroyAll(service, client);
    await service.close();
  });

  /** Every request has a grant. The tests of grants show the refusals. */
  async function listen(): Promise<[number, () => Promise<void>]> {
    const { ctx } = service;
    const access: PreviewAccess = {
      async judge(host) {
        const { rows } = await ctx.pool.query<{ status: string; wakes: boolean }>(
          "select status, spec -> 'lifecycle' ->> 'wake_on_request' = 'true' as wakes from sandboxes where id = $1",
          [host.sandboxId],
        );
        const target = { ...host, ...rows[0]!, orgId: client.org.id, previewId: newId() };
        return { target: { ...target, hostForm: 'outer' }, signal: new AbortController().signal };
      },
      serve: async () => Promise.reject(new ApiError('route_not_found')),
      refuse: async (_host, _refused, request, response) =>
        Promise.resolve(answerError(request, response, new ApiError('invalid_session'))),
    };
    const proxies = new TrustedProxies([]);
    const each = 1_000;
    const serving = new Serving({
      log: ctx.log,
      hosts,
      access,
      waker: openWaker(ctx),
      openPort: async (place, signal) => openPort(ctx, place, signal),
      proxies,
      limits: PREVIEW_LIMITS,
      meters: NO_METERS,
    });
    const listener = new PreviewListener(
      { log: ctx.log, limits: { total: each, each }, proxies, certificate: undefined },
      {
        request: (request, response) => serving.request(request, response),
        upgrade: (request, socket, head) => serving.upgrade(request, socket, head),
      },
    );
    const taken = await listener.listen('127.0.0.1', 0);
    hosts.listensAt(taken);
    return [
      taken,
      async () => {
        await listener.close();
        serving.close();
      },
    ];
  }

  async function asleep(name: string, script: string, lifecycle: object = {}): Promise<string> {
    const { body } = await client.post('/v1/sandboxes', {
      name,
      image: { type: 'oci', reference: IMAGE },
      pull_policy: 'never',
      runtime: { cmd: ['sh', '-c', script] },
      resources: { vcpus: 1, memory_mib: 32 },
      network: { enabled: false },
      lifecycle: { wake_on_request: true, ...lifecycle },
    });
    return body.id as string;
  }

  interface Seen {
    status: number;
    headers: Record<string, string | string[] | undefined>;
    text: string;
    /** From the request to the first byte of the answer. */
    ms: number;
  }

  async function ask(id: string, headers: Record<string, string> = {}, method = 'GET'): Promise<Seen> {
    const began = performance.now();
    const host = hosts.originOf({ port: 8000, sandboxId: id }).slice('http://'.length);
    const sent = httpRequest({
      host: '127.0.0.1',
      port,
      method,
      agent: false,
      headers: { ...headers, host },
    });
    sent.end(method === 'POST' ? 'x=1' : undefined);
    const [answer] = await once(sent, 'response');
    const ms = performance.now() - began;
    let text = '';
    for await (const chunk of answer) text += String(chunk);
    return { status: answer.statusCode, headers: answer.headers, text, ms };
  }

  /** Repeats it while the sandbox starts: on a busy machine a start takes longer than a request may wait. */
  const askWaiting = async (id: string, method = 'GET') =>
    until(
      () => ask(id, { prefer: 'wait=60' }, method),
      ({ status }) => status !== 503,
    );

  async function stop(id: string): Promise<void> {
    await client.post(`/v1/sandboxes/${id}/stop`, {}, { wait_for: 'stopped' });
    await untilStatus(client, id, 'stopped');
  }

  async function runsOf(id: string): Promise<any[]> {
    const { rows } = await service.ctx.pool.query(
      'select started_at, stopped_at, end_reason from runs where sandbox_id = $1 order by id',
      [id],
    );
    return rows;
  }

  test('starts once for a hundred requests, which all get the answer of a server that listens late', async () => {
    const id = await asleep('web', `sleep 5; ${SERVER}`);
    const answers = await Promise.all(Array.from({ length: 100 }, () => askWaiting(id)));
    expect(new Set(answers.map(({ status, text }) => `${status} ${text}`))).toEqual(new Set(['200 hello\n']));
    expect(await runsOf(id)).toHaveLength(1);
    // A request that arrives while the server of a new run does not listen yet.
    await stop(id);
    await client.post(`/v1/sandboxes/${id}/start`, {}, { wait_for: 'running' });
    expect((await ask(id)).text).toBe('hello\n');
  });

  testInBrowser(
    'answers a program at once, a POST and an upgrade later, and a browser with a page that goes on',
    async () => {
      const id = await asleep('page', `sleep 1; ${SERVER}`);
      const program = await ask(id);
      expect([program.status, program.headers['retry-after'], JSON.parse(program.text).error]).toMatchObject([
        503,
        '1',
        { code: 'sandbox_not_running', details: { reason: 'starting' } },
      ]);
      await untilStatus(client, id, 'running');
      await stop(id);
      // The server of BusyBox knows no POST.
      expect((await askWaiting(id, 'POST')).status).toBe(501);
      await stop(id);

      const browser = await launch();
      try {
        const page = await browser.newPage();
        // A start takes longer than the default of 30 seconds while other tests run.
        page.setDefaultTimeout(120_000);
        const shown = await page.goto(`${hosts.originOf({ port: 8000, sandboxId: id })}/`);
        expect([shown!.status(), await page.title()]).toEqual([503, 'The sandbox is starting']);
        // On a busy machine the first request of the page, of 20 seconds, may end before the start.
        await page.getByText('hello').waitFor();
      } finally {
        await browser.close();
      }
    },
  );

  test('takes a WebSocket that waited for it', async () => {
    const id = await asleep('socket', SOCKET);
    const host = hosts.originOf({ port: 8000, sandboxId: id }).slice('http://'.length);
    const said = async () => {
      const socket = new WebSocket(`ws://127.0.0.1:${port}/`, { headers: { host, prefer: 'wait=60' } });
      try {
        return String((await once(socket, 'message'))[0]);
      } catch (error) {
        return (error as Error).message;
      } finally {
        socket.terminate();
      }
    };
    expect(await until(said, (text) => !text.includes('503'))).toBe('woken');
  });

  test('says of one that requests do not start who can, and lets requests wait while it starts', async () => {
    const id = await asleep('plain', SERVER, { wake_on_request: false });
    const refusal = await ask(id, { prefer: 'wait=20' });
    expect([refusal.status, refusal.headers['retry-after'], JSON.parse(refusal.text).error]).toMatchObject([
      503,
      undefined,
      { code: 'sandbox_not_running', details: { reason: 'not_allowed' } },
    ]);
    const visit = await ask(id, { accept: 'text/html' });
    expect([visit.status, visit.text]).toEqual([503, expect.stringContaining('Its owner can.')]);
    expect(await runsOf(id)).toEqual([]);
    // The refusal is kept for a second.
    await pause(1_000);
    await client.post(`/v1/sandboxes/${id}/start`, {});
    expect((await askWaiting(id)).text).toBe('hello\n');
  });

  test('scales to zero and back, and each run is billed from its start to its end', async () => {
    const id = await asleep('zero', SERVER, { idle_timeout_secs: 5 });
    for (let run = 1; run <= 2; run += 1) {
      expect((await askWaiting(id)).status).toBe(200);
      const { body } = await untilStatus(client, id, 'stopped');
      expect(body.stop_reason).toBe('idle');
    }
    const runs = await runsOf(id);
    expect(runs.map(({ end_reason: reason }) => reason)).toEqual(['idle_timeout', 'idle_timeout']);
    const micros = runs.map((run) => microsOf(run.stopped_at) - microsOf(run.started_at));
    expect(micros.every((each) => each > 1_900_000n)).toBe(true);
    const { body } = await client.get('/v1/billing/usage/sandbox');
    const days = body.rows.filter((row: any) => row.sandbox_id === id);
    const billed = days.reduce((sum: number, row: any) => sum + row.vcpu_seconds, 0);
    expect(Math.round(billed * 1_000_000)).toBe(Number(micros[0]! + micros[1]!));
  });

  test('has its first byte soon after the start', async () => {
    const id = await asleep('speed', SERVER);
    const figures: { wake: number; start: number }[] = [];
    for (let round = 0; round < 5; round += 1) {
      const { ms: wake } = await ask(id, { prefer: 'wait=60' });
      await stop(id);
      const began = performance.now();
      await client.post(`/v1/sandboxes/${id}/start`, {}, { wait_for: 'running' });
      figures.push({ wake, start: performance.now() - began });
      await stop(id);
    }
    const middle = (name: 'wake' | 'start') =>
      Math.round(figures.map((each) => each[name]).toSorted((a, b) => a - b)[2]!);
    console.log(`wake to first byte: ${middle('wake')} ms; start: ${middle('start')} ms (medians of 5)`);
    expect(figures).toHaveLength(5);
  });
});
