import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { Agent, request as httpsRequest } from 'node:https';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { expect, inject, test } from 'vitest';
import { sleep } from '../../src/lib/sleep.js';
import { Authority } from '../support/certificates.js';
import { urlOf } from '../support/cli.js';
import { cloneTemplate } from '../support/database.js';
import { freePort } from '../support/free-port.js';
import { describeHaproxy, startHaproxy, type Haproxy } from '../support/haproxy.js';
import { cleanUp, kill, launch, makeFolder, ready, stop, until, type Served } from '../support/processes.js';
import { smallRequest } from '../support/sandbox-requests.js';

const DRAIN_SECONDS = 5;
const READERS = 4;
const WRITERS = 2;
const WAITERS = 2;

interface Setup {
  processes: Served[];
  begin: (index: number) => Promise<Served>;
  haproxy: Haproxy;
  load: Load;
}

async function withTwo(
  { drainSeconds, replace = [] }: { drainSeconds: number; replace?: [string, string][] },
  work: (setup: Setup) => Promise<void>,
): Promise<void> {
  const folder = makeFolder();
  const database = await cloneTemplate(inject('server'));
  const ports = [await freePort(), await freePort()];
  const begin = (index: number) =>
    ready(
      launch([
        'serve',
        '--json',
        '--runtime',
        'simulated',
        '--log-level',
        'warn',
        '--port',
        String(ports[index]),
        '--data-dir',
        join(folder, String(index)),
        '--database-url',
        urlOf(database.address),
        '--volumes-dir',
        join(folder, 'volumes'),
        '--secret-keys-file',
        join(folder, 'secret'),
        '--event-keys-file',
        join(folder, 'event'),
        '--capacity-vcpus',
        '100',
        '--trusted-proxies',
        '127.0.0.1',
        '--drain-seconds',
        String(drainSeconds),
      ]),
      folder,
    );
  const processes: Served[] = [await begin(0)];
  const key = processes[0]!.firstKey!;
  processes.push(await begin(1));
  const authority = new Authority();
  const haproxy = await startHaproxy(ports, authority.issue(), replace);
  try {
    await work({ processes, begin, haproxy, load: new Load(haproxy, authority.root, key) });
  } finally {
    await haproxy.close();
    for (const one of processes) await stop(one);
    await database.drop();
    await cleanUp(folder);
  }
}

describeHaproxy('a rolling restart of two processes behind HAProxy', () => {
  test('fails no request, loses no acknowledged write, and sends each event once', async () => {
    await withTwo({ drainSeconds: DRAIN_SECONDS }, async ({ processes, begin, haproxy, load }) => {
      const working = load.run();
      for (const index of [0, 1, 0, 1]) {
        await load.untilMore(100);
        expect(await stop(processes[index]!), processes[index]!.err()).toBe(0);
        processes[index] = await begin(index);
        await until('HAProxy sends requests to both', async () => (await haproxy.serversUp()) === 2, 60_000);
      }
      await load.untilMore(100);
      load.finish();
      await working;
      expect(load.failures).toEqual([]);
      await load.checkWrites();
      await load.checkEvents();
    });
  });

  // The controls: the load notices each fault that the drain and the retries of HAProxy prevent.
  test('fails requests of the same load without drain, check and retries', async () => {
    const replace: [string, string][] = [
      ['retries 3', 'retries 0'],
      ['fall 2', 'fall 1000000'],
    ];
    await withTwo({ drainSeconds: 0, replace }, async ({ processes, begin, load }) => {
      const working = load.run();
      await load.untilMore(100);
      expect(load.failures).toEqual([]);
      expect(await stop(processes[0]!), processes[0]!.err()).toBe(0);
      await until('a request fails', () => load.failures.length > 0);
      processes[0] = await begin(0);
      load.finish();
      await working;
      expect(load.failures.join('\n')).toContain('503 Service Unavailable');
    });
  });

  test('fails the stream of the same load when each process is killed in turn', async () => {
    await withTwo({ drainSeconds: DRAIN_SECONDS }, async ({ processes, begin, haproxy, load }) => {
      const working = load.run();
      await load.untilMore(100);
      expect(load.failures).toEqual([]);
      for (const index of [0, 1]) {
        kill('SIGKILL', processes[index]!.pid);
        await processes[index]!.exited;
        processes[index] = await begin(index);
        await until('HAProxy sends requests to both', async () => (await haproxy.serversUp()) === 2, 60_000);
      }
      load.finish();
      await working;
      expect(load.failures).toContainEqual(expect.stringMatching(/aborted|ECONNRESET/));
    });
  });
});

interface Answer {
  status: number;
  body: any;
}

/** Clients that retry nothing: each answer but 2xx is a failure. */
class Load {
  readonly failures: string[] = [];
  private readonly volumes: string[] = [];
  private readonly sandboxes: string[] = [];
  private readonly events: { id: string; type: string; data: any }[] = [];
  private readonly stopping = new AbortController();
  private readonly followed = new AbortController();
  private answered = 0;
  private waits = 0;
  private streams = 0;
  private hasBegun = false;

  constructor(
    private readonly haproxy: Haproxy,
    private readonly ca: string,
    private readonly key: string,
  ) {}

  /** Works until `finish`, then until the stream has the event of a last write. */
  async run(): Promise<void> {
    const client = () => new Agent({ keepAlive: true, maxSockets: 1 });
    const loop = async (work: (agent: Agent, count: number) => Promise<void>) => {
      const agent = client();
      for (let count = 0; !this.stopping.signal.aborted; count += 1) {
        await work(agent, count).catch((error: unknown) => this.failures.push(String(error)));
        await sleep(20);
      }
      agent.destroy();
    };
    const following = this.follow(client());
    // The stream has only events from its begin on.
    await until(
      () => `the stream has begun; failures: ${this.failures.join('; ')}`,
      () => this.hasBegun,
      60_000,
    );
    await Promise.all([
      ...Array.from({ length: READERS }, () => loop((agent, count) => this.read(agent, count))),
      ...Array.from({ length: WRITERS }, () => loop((agent) => this.write(agent))),
      ...Array.from({ length: WAITERS }, () => loop((agent) => this.wait(agent))),
    ]);
    // Only now does no other write follow the last one.
    const last = `last-${randomUUID()}`;
    await this.ask(new Agent(), 'POST', '/v1/volumes', { name: last });
    this.volumes.push(last);
    await until(
      () => `the stream has the last event; failures: ${this.failures.join('; ')}`,
      () => this.events.some(({ data }) => data.payload?.name === last),
      60_000,
    );
    this.followed.abort();
    await following;
  }

  async untilMore(amount: number): Promise<void> {
    const wanted = this.answered + amount;
    const waits = this.waits + 2;
    await until(
      () => `the load goes on; failures: ${this.failures.slice(0, 5).join('; ')}`,
      () => (this.answered >= wanted && this.waits >= waits) || this.failures.length > 0,
      120_000,
    );
  }

  finish(): void {
    this.stopping.abort();
  }

  private async ask(
    agent: Agent,
    method: string,
    path: string,
    body?: object,
    id: string = randomUUID(),
  ): Promise<Answer> {
    const sent = await this.send(agent, method, path, body, id);
    const [status, received] = [sent.statusCode!, await text(sent)];
    this.answered += 1;
    if (status >= 300) throw new Error(`${method} ${path}: ${status} ${received}`);
    return { status, body: JSON.parse(received) };
  }

  private async send(
    agent: Agent,
    method: string,
    path: string,
    body: object | undefined,
    id: string,
    more: Record<string, string> = {},
  ): Promise<IncomingMessage> {
    const request = httpsRequest({
      host: '127.0.0.1',
      port: this.haproxy.port,
      ca: this.ca,
      agent,
      method,
      path,
      headers: {
        authorization: `Bearer ${this.key}`,
        ...(method === 'GET' ? {} : { 'idempotency-key': id }),
        ...(body ? { 'content-type': 'application/json' } : {}),
        ...more,
      },
    }).end(body && JSON.stringify(body));
    const [answer] = (await once(request, 'response')) as [IncomingMessage];
    return answer;
  }

  private async read(agent: Agent, count: number): Promise<void> {
    const paths = ['/v1/sandboxes', '/v1/volumes', '/v1/events?limit=5', '/v1/me/org'];
    await this.ask(agent, 'GET', paths[count % paths.length]!);
  }

  private async write(agent: Agent): Promise<void> {
    const name = `volume-${randomUUID()}`;
    await this.ask(agent, 'POST', '/v1/volumes', { name });
    this.volumes.push(name);
  }

  /** A wait that the stop of its process ends early is sent again under its key, and continues. */
  private async wait(agent: Agent): Promise<void> {
    const [name, id] = [`sandbox-${randomUUID()}`, randomUUID()];
    const path = '/v1/sandboxes?start=true&wait_for=running';
    let sandbox = (await this.ask(agent, 'POST', path, smallRequest(name), id)).body;
    this.sandboxes.push(name);
    while (sandbox.status === 'starting') {
      sandbox = (await this.ask(agent, 'POST', path, smallRequest(name), id)).body;
    }
    if (sandbox.status !== 'running') throw new Error(`the wait ended with ${sandbox.status}`);
    this.waits += 1;
    await this.ask(agent, 'DELETE', `/v1/sandboxes/${sandbox.id}`);
  }

  private async follow(agent: Agent): Promise<void> {
    let last: string | undefined;
    while (!this.followed.signal.aborted) {
      try {
        this.streams += 1;
        const more = last === undefined ? {} : { 'last-event-id': last };
        const answer = await this.send(agent, 'GET', '/v1/events/stream', undefined, '', more);
        if (answer.statusCode !== 200)
          throw new Error(`the stream: ${answer.statusCode} ${await text(answer)}`);
        this.followed.signal.addEventListener('abort', () => answer.destroy(), { once: true });
        let buffered = '';
        for await (const chunk of answer) {
          this.hasBegun = true;
          const messages = (buffered + String(chunk)).split('\n\n');
          buffered = messages.pop()!;
          for (const message of messages) last = this.take(message) ?? last;
        }
      } catch (error) {
        if (!this.followed.signal.aborted) this.failures.push(String(error));
      }
    }
    agent.destroy();
  }

  private take(message: string): string | undefined {
    const field = (name: string) => new RegExp(`^${name}: (.*)$`, 'm').exec(message)?.[1];
    const [id, type, data] = [field('id'), field('event'), field('data')];
    if (id !== undefined && type !== undefined) this.events.push({ id, type, data: JSON.parse(data!) });
    return id;
  }

  /** Each acknowledged name exists once, or was deleted once. */
  async checkWrites(): Promise<void> {
    const { body } = await this.ask(new Agent(), 'GET', '/v1/volumes');
    const names = (body as { name: string }[]).map(({ name }) => name);
    expect(this.volumes.length).toBeGreaterThan(20);
    expect(names.filter((name) => /^(volume|last)-/.test(name)).toSorted()).toEqual(this.volumes.toSorted());
  }

  /** The stream had the creation of each once, whichever process sent it. */
  async checkEvents(): Promise<void> {
    const created = (kind: string) =>
      this.events
        .filter(({ type }) => type === `${kind}_created`)
        .map(({ data }) => String(data.payload.name))
        .filter((name) => /^(volume|sandbox|last)-/.test(name))
        .toSorted();
    expect(created('volume')).toEqual(this.volumes.toSorted());
    expect(created('sandbox')).toEqual(this.sandboxes.toSorted());
    expect(new Set(this.events.map(({ id }) => id)).size).toBe(this.events.length);
    expect(this.streams).toBeGreaterThan(1);
    return Promise.resolve();
  }
}
