import { Buffer } from 'node:buffer';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Guest, GuestFiles } from '../../../src/guest/guest.js';
import { freePort } from '../../support/free-port.js';
import { connectSoon, readAll, sh, TestCommand, TestConnection } from '../../support/guest.js';
import { until } from '../../support/polling.js';
import type { GuestTarget } from './target.js';

export function connectionTests(open: () => Promise<GuestTarget>): void {
  describe('connections', () => {
    let target: GuestTarget;
    let guest: Guest;
    let files: GuestFiles;
    let directory: string;
    beforeAll(async () => {
      target = await open();
      ({ guest, directory } = target);
      files = guest.files();
    });
    afterAll(async () => {
      files?.end();
      await target?.close();
    });

    const serve = (port: number, ...program: string[]) =>
      new TestCommand(guest, ['nc', '-l', '-p', `${port}`, '-e', ...program]);

    test('carry data both ways, and each way ends on its own', async () => {
      const port = await freePort();
      const server = serve(port, 'sh', '-c', 'wc -c; echo still');
      const opened = await connectSoon(guest, port);
      const data = Buffer.alloc(1_500_000, 97);
      await opened.connection.write(data);
      opened.connection.end();
      await opened.saw('closed');
      expect([opened.text, opened.closed]).toEqual(['1500000\nstill\n', { failure: null }]);
      expect(opened.calls).toEqual(['connected', 'ended', 'closed']);
      await server.over;
    });

    test('stay open for input when the other end has sent everything', async () => {
      const port = await freePort();
      const server = serve(port, 'sh', '-c', `echo greeting; exec >&-; cat > ${directory}/received`);
      const opened = await connectSoon(guest, port);
      await until(
        () => Promise.resolve(opened.text),
        (text) => text === 'greeting\n',
      );
      await opened.connection.write(Buffer.from('late'));
      opened.connection.end();
      await opened.saw('closed');
      await server.over;
      expect((await readAll(files, `${directory}/received`)).toString()).toBe('late');
    });

    test('carry much data to a slow reader', async () => {
      const port = await freePort();
      const server = serve(port, 'head', '-c', '8000000', '/dev/zero');
      const opened = await connectSoon(guest, port);
      await opened.saw('ended');
      expect(opened.received.reduce((sum, { length }) => sum + length, 0)).toBe(8_000_000);
      opened.connection.close();
      await opened.saw('closed');
      await server.over;
    });

    test('that are refused tell it', async () => {
      const refused = new TestConnection(guest, '127.0.0.1', 1);
      await refused.saw('closed');
      expect([refused.closed, refused.calls]).toEqual([{ failure: 'Connection refused' }, ['closed']]);
    });

    test('that are reset tell it', async () => {
      const port = await freePort();
      const ending = `${directory}/reset`;
      const server = serve(port, 'sh', '-c', `until [ -e ${ending} ]; do sleep 0.1; done`);
      const opened = await connectSoon(guest, port);
      await opened.connection.write(Buffer.from('nobody reads this'));
      await sh(guest, `touch ${ending}`);
      await opened.saw('closed');
      expect(opened.closed).toEqual({ failure: 'Connection reset by peer' });
      await server.over;
    });

    test('end on both sides when they are closed', async () => {
      const port = await freePort();
      const server = serve(port, 'sh', '-c', 'cat; echo over >&2');
      const opened = await connectSoon(guest, port);
      opened.connection.close();
      await opened.saw('closed');
      await server.over;
      expect(opened.closed).toEqual({ failure: null });
    });
  });
}
