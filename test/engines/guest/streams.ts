import fc from 'fast-check';
import { Buffer } from 'node:buffer';
import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Guest } from '../../../src/guest/guest.js';
import { openGuestStream, PortRefusedError } from '../../../src/sandboxes/ports/guest-stream.js';
import { freePort } from '../../support/free-port.js';
import { TestCommand } from '../../support/guest.js';
import { until } from '../../support/polling.js';
import type { GuestTarget } from './target.js';

export type OpenStream = (guest: Guest, options: Parameters<typeof openGuestStream>[1]) => Promise<Duplex>;

/** `openStream`: the way to a port of the guest. */
export function streamTests(
  open: () => Promise<GuestTarget>,
  openStream: OpenStream = openGuestStream,
): void {
  describe('streams to ports', () => {
    let target: GuestTarget;
    let guest: Guest;
    let touches = 0;
    beforeAll(async () => {
      target = await open();
      ({ guest } = target);
    });
    afterAll(() => target?.close());

    const listen = (port: number, program: string[]) =>
      new TestCommand(guest, ['nc', '-l', '-p', `${port}`, '-e', ...program]);
    const openAt = async (port: number, signal = new AbortController().signal) =>
      until(
        async () => openStream(guest, { port, signal, touch: () => (touches += 1) }).catch((error) => error),
        (opened) => !(opened instanceof PortRefusedError),
      );

    test('carry the same bytes in each direction, for any pieces and pauses', async () => {
      await fc.assert(
        fc.asyncProperty(
          fc.array(fc.integer({ min: 1, max: 200_000 }), { maxLength: 12 }),
          fc.integer({ min: 0, max: 255 }),
          fc.boolean(),
          async (sizes, seed, isSlow) => {
            const port = await freePort();
            const server = listen(port, ['cat']);
            const stream = await openAt(port);
            const pieces = sizes.map((size, index) => Buffer.alloc(size, seed + index));
            const received = (async () => {
              const parts: Buffer[] = [];
              for await (const part of stream) {
                parts.push(part);
                if (isSlow) await new Promise(setImmediate);
              }
              return Buffer.concat(parts);
            })();
            for (const piece of pieces) if (!stream.write(piece)) await once(stream, 'drain');
            stream.end();
            expect((await received).equals(Buffer.concat(pieces))).toBe(true);
            await server.over;
          },
        ),
        { numRuns: 12 },
      );
      expect(touches).toBeGreaterThan(0);
    });

    test('stop the sender while nobody reads', async () => {
      const port = await freePort();
      const server = listen(port, ['sh', '-c', 'head -c 20000000 /dev/zero; echo sent >&2']);
      const stream = await openAt(port);
      await until(
        async () => stream.readableLength,
        (length) => length > 0,
      );
      expect(server.err).not.toContain('sent');
      expect(stream.readableLength).toBeLessThan(2_000_000);
      expect(await buffer(stream)).toHaveLength(20_000_000);
      stream.end();
      await server.over;
    });

    test('answer after their input has ended', async () => {
      const port = await freePort();
      const server = listen(port, ['sh', '-c', 'wc -c; echo still']);
      const stream = await openAt(port);
      stream.end(Buffer.alloc(300_000));
      expect((await buffer(stream)).toString()).toBe('300000\nstill\n');
      await server.over;
    });

    test('refuse a port on which nothing listens', async () => {
      const options = { port: 1, signal: new AbortController().signal, touch: () => undefined };
      await expect(openStream(guest, options)).rejects.toBeInstanceOf(PortRefusedError);
    });

    test('end with their signal, on both sides', async () => {
      const port = await freePort();
      const server = listen(port, ['sh', '-c', 'cat; echo over >&2']);
      const control = new AbortController();
      const stream = await openAt(port, control.signal);
      const closed = new Promise((resolve) => stream.once('close', resolve));
      control.abort();
      await closed;
      await server.over;
      await expect(
        openStream(guest, { port, signal: control.signal, touch: () => undefined }),
      ).rejects.toThrow();
    });
  });
}
