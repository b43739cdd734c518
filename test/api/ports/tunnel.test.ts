import { Buffer } from 'node:buffer';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';
import type { Duplex } from 'node:stream';
import { buffer, text } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { WebSocket } from 'ws';
import { FORWARDED_HEADER } from '../../../src/http/forwarded.js';
import { PortRefusedError } from '../../../src/sandboxes/ports/guest-stream.js';
import { NotRunningError } from '../../../src/sandboxes/ports/not-running.js';
import { openPort } from '../../../src/sandboxes/ports/open-port.js';
import { openOwnPort } from '../../../src/sandboxes/ports/own-port.js';
import { describeDocker } from '../../support/docker.js';
import { startInside, type Inside } from '../../support/inside.js';
import { until } from '../../support/polling.js';
import { startTestService, type TestService } from '../../support/service.js';

const ECHO = 7_001;
const COUNT = 7_002;
const MIB = 1024 * 1024;
const NEVER = new AbortController().signal;

describeDocker('a port of a sandbox on the engine of another process', () => {
  let inside: Inside;
  let front: TestService;
  let id: string;
  let orgId: string;
  beforeAll(async () => {
    inside = await startInside();
    front = await startTestService({ beside: inside.service, worker: false });
    orgId = inside.client.org.id;
    id = await inside.start('box');
    const command = `busybox nc -ll -p ${ECHO} -e cat >/dev/null 2>&1 & busybox nc -ll -p ${COUNT} -e busybox wc -c >/dev/null 2>&1 & echo up`;
    const { body } = await inside.client.post(`/v1/sandboxes/${id}/exec`, {
      cmd: 'sh',
      args: ['-c', command],
    });
    expect(body.stdout).toBe('up\n');
    await until(
      () => open(ECHO).catch(() => undefined),
      (stream) => stream?.destroy() !== undefined,
    );
    await until(
      () => open(COUNT).catch(() => undefined),
      (stream) => stream?.destroy() !== undefined,
    );
  });
  afterAll(async () => {
    await front?.close();
    await inside?.close();
  });

  const open = (port: number, signal = NEVER): Promise<Duplex> =>
    openPort(front.ctx, { orgId, sandboxId: id, port }, signal);

  async function send(stream: Duplex, piece: Buffer, times: number): Promise<void> {
    for (let sent = 0; sent < times; sent += 1) if (!stream.write(piece)) await once(stream, 'drain');
    stream.end();
  }

  test('carries bytes in both directions, for readers of any speed', async () => {
    const stream = await open(ECHO);
    const received = (async () => {
      let size = 0;
      for await (const part of stream) {
        size += (part as Buffer).length;
        if (size % 7 === 0) await pause(1);
      }
      return size;
    })();
    await send(stream, Buffer.alloc(700_000, 7), 16);
    expect(await received).toBe(16 * 700_000);
  });

  test('ends each direction alone', async () => {
    const stream = await open(COUNT);
    await send(stream, Buffer.alloc(MIB), 3);
    expect((await text(stream)).trim()).toBe(String(3 * MIB));
  });

  test('makes a writer wait while nobody reads', async () => {
    const stream = await open(ECHO);
    let sent = 0;
    const piece = Buffer.alloc(65_536, 1);
    for (; sent < 4_096; sent += 1) {
      if (stream.write(piece)) continue;
      const drained = await Promise.race([once(stream, 'drain'), pause(1_000)]);
      if (drained === undefined) break;
    }
    // 256 MiB were offered. The buffers of the kernels on the way hold up to 40 MiB.
    expect(sent).toBeLessThan(2_048);
    const rest = buffer(stream);
    stream.end();
    expect((await rest).length).toBe((sent + 1) * piece.length);
  });

  test('has the same errors as a port on the own engine', async () => {
    await expect(open(7_999)).rejects.toBeInstanceOf(PortRefusedError);
    const away = { orgId, sandboxId: crypto.randomUUID(), port: ECHO };
    await expect(openPort(front.ctx, away, NEVER)).rejects.toBeInstanceOf(NotRunningError);
    const { org } = await inside.service.newOrg();
    await expect(
      openPort(front.ctx, { orgId: org.id, sandboxId: id, port: ECHO }, NEVER),
    ).rejects.toBeInstanceOf(NotRunningError);
    await expect(openOwnPort(front.ctx, { orgId, sandboxId: id, port: ECHO }, NEVER)).rejects.toMatchObject({
      kind: 'not_ready',
    });
  });

  test('ends by the signal on both processes', async () => {
    const over = new AbortController();
    const stream = await open(ECHO, over.signal);
    const closed = new Promise((resolve) => stream.once('close', resolve));
    over.abort(new Error('revoked'));
    await closed;
    expect(stream.errored?.message).toBe('revoked');
    const early = AbortSignal.abort(new Error('never'));
    await expect(open(ECHO, early)).rejects.toThrow('never');
  });

  test('opens for sealed requests of processes of the service alone', async () => {
    const url = `/internal/orgs/${orgId}/sandboxes/${id}/ports/${ECHO}`;
    const seal = (path: string, target = inside.service.runtime.engineId, at = Date.now()) =>
      front.ctx.peer.seal.seal({ method: 'GET', url: path, headers: {} } as IncomingMessage, '', target, at);
    const answerTo = async (headers: Record<string, string>) => {
      const socket = new WebSocket(new URL(url, inside.service.url), { headers });
      socket.on('error', () => undefined);
      return new Promise<number>((resolve) => {
        socket.once('open', () => resolve(101));
        socket.once('unexpected-response', (_, { statusCode }) => resolve(statusCode!));
      }).finally(() => socket.terminate());
    };
    expect(await answerTo({ [FORWARDED_HEADER]: seal(url) })).toBe(101);
    expect(await answerTo({})).toBe(404);
    expect(await answerTo({ authorization: `Bearer ${inside.client.key}` })).toBe(404);
    expect(await answerTo({ [FORWARDED_HEADER]: 'forged' })).toBe(400);
    expect(await answerTo({ [FORWARDED_HEADER]: seal(url.replace(`${ECHO}`, `${COUNT}`)) })).toBe(400);
    expect(await answerTo({ [FORWARDED_HEADER]: seal(url, front.runtime.engineId) })).toBe(400);
    expect(await answerTo({ [FORWARDED_HEADER]: seal(url, undefined, Date.now() - 31_000) })).toBe(503);
    const plain = await fetch(new URL(url, inside.service.url), {
      headers: { [FORWARDED_HEADER]: seal(url) },
    });
    expect(plain.status).toBe(404);
  });
});
