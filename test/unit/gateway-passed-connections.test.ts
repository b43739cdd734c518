import { once } from 'node:events';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import type { Rule } from '../../src/network-policy/schema.js';
import { Front, outcomeOf, settingsOf } from '../support/gateway-front.js';

const SERVER = '127.2.0.1';
const GOOD: Rule = { direction: 'egress', destination: { domain: 'good.example' }, action: 'allow' };

let front: Front;
afterEach(() => front.close());

/** The sandbox has resolved the name of the server. */
function open(): void {
  front = new Front({ waits: { firstBytesMs: 30_000, serverFirstMs: 1_000 } });
  front.table.set(settingsOf({ default_egress: 'deny', rules: [GOOD] }));
  front.bind('good.example', SERVER);
}

describe('a connection that passes', () => {
  async function pair(): Promise<{ client: Socket; server: Socket }> {
    open();
    const accepted = new Promise<Socket>((resolve) => void front.serveRaw(SERVER, 22, resolve));
    const client = await front.connect(SERVER, 22);
    client.write('SSH-2.0-x\r\n');
    const server = await accepted;
    await once(server, 'data');
    return { client, server };
  }

  it('ends in each direction by itself', async () => {
    const { client, server } = await pair();
    const outcome = outcomeOf(server);
    client.end('last');
    await once(server, 'end');
    const { text } = await outcome;
    expect(text).toBe('last');
    const other = await pair();
    other.server.end('bye');
    const [bytes] = await once(other.client, 'data');
    expect(String(bytes)).toBe('bye');
    await once(other.client, 'end');
    other.client.write('still here');
    const [more] = await once(other.server, 'data');
    expect(String(more)).toBe('still here');
  });

  it('passes a reset on, both ways', async () => {
    const one = await pair();
    one.server.resetAndDestroy();
    expect((await outcomeOf(one.client)).end).toBe('reset');
    front.close();
    const cut = await pair();
    const outcome = outcomeOf(cut.client);
    cut.server.write('half of an answer');
    cut.server.resetAndDestroy();
    expect((await outcome).end).toBe('reset');
    front.close();
    const two = await pair();
    two.client.resetAndDestroy();
    expect((await outcomeOf(two.server)).end).toBe('reset');
  });

  it('is reset when its server does not listen, or when its sandbox is gone', async () => {
    open();
    const unheard = await front.connect(SERVER, 22);
    unheard.write('SSH-2.0-x\r\n');
    expect(await outcomeOf(unheard)).toEqual({ text: '', end: 'reset' });
    front.close();
    const { client, server } = await pair();
    front.acceptor.forget('sandbox');
    for (const { end } of await Promise.all([outcomeOf(client), outcomeOf(server)]))
      expect(end).toBe('reset');
  });

  it('holds little memory for a client that reads nothing', async () => {
    const { client, server } = await pair();
    client.pause();
    const chunk = Buffer.alloc(1024 * 1024);
    const until = performance.now() + 1_000;
    while (performance.now() < until) {
      if (server.writableLength < 4 * chunk.length) server.write(chunk);
      await sleep(5);
    }
    // The buffers of the kernel have a part. A gateway that reads on would have all by now.
    const { receivedBytes } = front.flows.report()[0]!;
    expect(receivedBytes).toBeLessThan(64 * chunk.length);
    client.resume();
    await once(client, 'data');
  });
});
