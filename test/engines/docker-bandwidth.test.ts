import { once } from 'node:events';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { sleep } from '../../src/lib/sleep.js';
import { BANDWIDTH } from '../../src/machine-network/bandwidth.js';
import { DockerRuntime } from '../../src/engines/docker/runtime.js';
import type { Client } from '../support/client.js';
import { end, gatewayOf, pidOf, startWith } from '../support/docker-network.js';
import { describeDocker, execIn, IMAGE, makeImage, SOCKET } from '../support/docker.js';
import { describeNetns, sh } from '../support/netns.js';
import { until, untilStatus } from '../support/polling.js';
import { startTestService, type TestService } from '../support/service.js';

const MBITS = 8;
const BYTES_PER_SECOND = 1_000_000;
const WATCHED_MS = 6_000;
/** After the burst. */
const GOING_ON_BYTES = 2_000_000;
const LOOPBACK_MS = 120_000;

/** The most bytes that the rules let through in this time. The kernel adds those of a second to the burst. */
const mostBytes = (seconds: number) => BANDWIDTH.burstBytes + BYTES_PER_SECOND * (seconds + 1);
/** More than the rules let through before a time-out. */
const UNLIMITED_BYTES = 3 * BANDWIDTH.burstBytes;

type Way = 'out' | 'in';

/** A server of the machine, which a sandbox reaches at its gateway. It counts bytes, or sends them without end. */
class Peer {
  private received = 0;
  private readonly sockets = new Set<Socket>();
  private readonly sink = this.listen((socket) => {
    socket.on('data', ({ length }) => (this.received += length));
  });
  private readonly source = this.listen((socket) => {
    const zeros = Buffer.alloc(64 * 1_024);
    const send = () => {
      while (socket.writable && socket.write(zeros));
    };
    socket.on('drain', send);
    send();
  });

  /** Begins a transfer without end. Returns a function that reads how many bytes have arrived. */
  async begin(sandboxId: string, way: Way): Promise<() => Promise<number>> {
    const server = way === 'out' ? this.sink : this.source;
    if (!server.listening) await once(server, 'listening');
    const to = `${await gatewayOf(sandboxId)} ${(server.address() as AddressInfo).port}`;
    this.received = 0;
    const command = way === 'out' ? `nc ${to} < /dev/zero` : `nc ${to} > /tmp/got`;
    void execIn(sandboxId, 'sh', '-c', `busybox ${command}`).catch(() => undefined);
    return async () => {
      if (way === 'out') return this.received;
      return Number.parseInt(await execIn(sandboxId, 'busybox', 'stat', '-c', '%s', '/tmp/got'), 10) || 0;
    };
  }

  endTransfers(): void {
    for (const socket of this.sockets) socket.destroy();
  }

  close(): void {
    this.endTransfers();
    this.sink.close();
    this.source.close();
  }

  private listen(serve: (socket: Socket) => void): Server {
    // `nc` ends its side at once when it has no input.
    const server = createServer({ allowHalfOpen: true }, (socket) => {
      this.sockets.add(socket);
      socket.on('error', () => undefined).on('close', () => this.sockets.delete(socket));
      serve(socket);
    });
    return server.listen(0, '0.0.0.0');
  }
}

describeDocker('the bandwidth of docker sandboxes', () => {
  describeNetns('with the firewall tools', () => {
    let service: TestService;
    let client: Client;
    let peer: Peer;
    let id: string;

    beforeAll(async () => {
      makeImage();
      peer = new Peer();
      service = await startWith({ allow: ['host'], bandwidthMbits: MBITS });
      client = await service.newOrg();
      const { body } = await client.post(
        '/v1/sandboxes',
        {
          name: 'busy',
          image: { type: 'oci', reference: IMAGE },
          pull_policy: 'never',
          network: { policy: { default_egress: 'allow', default_ingress: 'allow' } },
        },
        { start: true, wait_for: 'running', wait_timeout: 120 },
      );
      expect(body.status, JSON.stringify(body)).toBe('running');
      id = body.id;
    });
    afterAll(async () => {
      peer.close();
      await end(service, client);
    });

    const limitsOf = async () =>
      sh(`nsenter --net=/proc/${await pidOf(id)}/ns/net nft list table inet sandkeep`)
        .split('\n')
        .filter((rule) => rule.includes('bytes/second'))
        .map((rule) => rule.trim());

    test.each<Way>(['out', 'in'])(
      'has the limit after the burst, under a policy that allows all (%s)',
      async (way) => {
        const begun = performance.now();
        const arrived = await peer.begin(id, way);
        const before = await until(arrived, (bytes) => bytes > BANDWIDTH.burstBytes);
        await sleep(WATCHED_MS);
        const after = await arrived();
        const now = performance.now();
        expect(after).toBeLessThanOrEqual(mostBytes((now - begun) / 1_000));
        // It goes on, however slow the machine is.
        await until(arrived, (bytes) => bytes > before + GOING_ON_BYTES);
        peer.endTransfers();
      },
    );

    test('does not count what a sandbox sends to itself', async () => {
      const server = 'busybox nc -l -p 9 -e /bin/busybox cat &';
      const listens = 'until busybox grep -q ":0009 .* 0A " /proc/net/tcp /proc/net/tcp6; do sleep 0.1; done';
      const echoed = `head -c ${UNLIMITED_BYTES} /dev/zero | busybox nc 127.0.0.1 9 | busybox wc -c`;
      const begun = performance.now();
      const counted = await execIn(id, 'sh', '-c', `${server} ${listens}; ${echoed}`);
      expect(Number.parseInt(counted, 10)).toBe(UNLIMITED_BYTES);
      expect(performance.now() - begun).toBeLessThan(LOOPBACK_MS);
    });

    test('keeps its limit after a change of the option, until the next start of the sandbox', async () => {
      const rule = `limit rate over ${BYTES_PER_SECOND} bytes/second burst 64 mbytes drop`;
      expect(await limitsOf()).toEqual([rule, rule]);
      await service.stopWorker();
      const restarted = await startTestService({
        beside: service,
        sameEngine: true,
        settings: { stopGraceMs: 500 },
        runtime: (instanceId, volumes) =>
          DockerRuntime.connect(instanceId, {
            socketPath: SOCKET,
            volumes,
            allow: ['host'],
            bandwidthMbits: 0,
            capacity: service.runtime.capacity,
          }),
      });
      try {
        await restarted.runtime.list();
        await restarted.runtime.list();
        expect(await limitsOf()).toEqual([rule, rule]);
        expect((await client.get(`/v1/sandboxes/${id}`)).body.status).toBe('running');
        await client.post(`/v1/sandboxes/${id}/stop`, {});
        await untilStatus(client, id, 'stopped');
        const { body } = await client.post(`/v1/sandboxes/${id}/start`, {}, { wait_for: 'running' });
        expect(body.status, JSON.stringify(body)).toBe('running');
        expect(await limitsOf()).toEqual([]);
        for (const way of ['out', 'in'] as const) {
          await until(await peer.begin(id, way), (bytes) => bytes > UNLIMITED_BYTES);
          peer.endTransfers();
        }
        await client.delete(`/v1/sandboxes/${id}`);
        await until(
          () => restarted.runtime.list(),
          (held) => held.length === 0,
        );
      } finally {
        await restarted.close();
      }
    });
  });
});
