import { once } from 'node:events';
import { describe, expect, it } from 'vitest';
import { until as poll } from '../../support/polling.js';
import { exchangeRaw, openRaw } from '../../support/raw-connection.js';
import { ask, rawSandbox, startPreviews } from '../../support/previews.js';

const until = (isSo: () => boolean) => poll(() => Promise.resolve(isSo()), Boolean);
const OK = 'HTTP/1.1 200 OK\r\n';

describe('an answer that is no valid HTTP', () => {
  it.each([
    ['no HTTP', 'SSH-2.0-OpenSSH\r\n'],
    ['another version', 'HTTP/2.0 200 OK\r\n\r\n'],
    ['a status of two digits', 'HTTP/1.1 99 Low\r\ncontent-length: 0\r\n\r\n'],
    ['two lengths', `${OK}Content-Length: 1\r\nContent-Length: 2\r\n\r\nab`],
    ['a length beside chunks', `${OK}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`],
    ['another coding', `${OK}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n`],
    ['a space before the colon', `${OK}Content-Length : 1\r\n\r\na`],
    ['a NUL in a header', `${OK}X: a\0b\r\ncontent-length: 0\r\n\r\n`],
    ['a head of 100 KiB', `${OK}X: ${'a'.repeat(100 * 1024)}\r\n\r\n`],
    ['a head of endless lines', `${OK}${'X: a\r\n'.repeat(60_000)}`],
    ['endless interim answers', 'HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n'.repeat(1_000)],
    [
      'an upgrade that nobody asked for',
      'HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n',
    ],
    ['101 without an upgrade', 'HTTP/1.1 101 Switching Protocols\r\n\r\n'],
  ])('is 502: %s', async (_case, answer) => {
    const previews = await startPreviews(rawSandbox(answer));
    expect((await ask(previews)).status).toBe(502);
    await until(() => previews.meters.open === 0);
  });

  it('is 502 when the server closes without one', async () => {
    const previews = await startPreviews(rawSandbox((socket) => socket.destroy()));
    expect((await ask(previews)).status).toBe(502);
    const ended = await startPreviews(rawSandbox((socket) => socket.end()));
    expect((await ask(ended, { method: 'POST', body: 'x' })).status).toBe(502);
  });
});

describe('an answer', () => {
  it('cannot add a header or an answer of its own by line breaks', async () => {
    const previews = await startPreviews(
      rawSandbox(`${OK}X: a\nSet-Cookie: b=c; Domain=localhost\r\nContent-Length: 2\r\n\r\nok`),
    );
    const { status, headers } = await ask(previews);
    if (status === 200) expect(headers['set-cookie']).toEqual(['b=c']);
    else expect(status).toBe(502);
  });

  it('that is too short is no whole answer', async () => {
    const previews = await startPreviews(
      rawSandbox((socket) => socket.end(`${OK}Content-Length: 100\r\n\r\nshort`)),
    );
    await expect(ask(previews)).rejects.toThrow();
    const chunked = await startPreviews(
      rawSandbox((socket) => socket.end(`${OK}Transfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n`)),
    );
    await expect(ask(chunked)).rejects.toThrow();
  });

  it('that is too long ends at its length, and the next request gets its own', async () => {
    let count = 0;
    const previews = await startPreviews(
      rawSandbox((socket) => {
        count += 1;
        socket.write(`${OK}Content-Length: 1\r\n\r\n${count}${OK}Content-Length: 6\r\n\r\nPOISON`);
      }),
    );
    const texts = [(await ask(previews)).text, (await ask(previews)).text, (await ask(previews)).text];
    expect(texts.join()).not.toContain('POISON');
  });

  it('to HEAD has no body', async () => {
    const previews = await startPreviews(rawSandbox(`${OK}Content-Length: 6\r\n\r\nPOISON`));
    const text = await exchangeRaw(
      `http://127.0.0.1:${previews.port}`,
      `HEAD / HTTP/1.1\r\nHost: ${previews.host}\r\nConnection: close\r\n\r\n`,
    );
    expect(text).not.toContain('POISON');
  });

  it('ends with the connection in HTTP/1.0', async () => {
    const previews = await startPreviews(
      rawSandbox((socket) => socket.end('HTTP/1.0 200 OK\r\n\r\nuntil the end')),
    );
    expect((await ask(previews)).text).toBe('until the end');
  });
});

describe('an upgrade', () => {
  const upgrade = (previews: { port: number; host: string }, protocol: string) =>
    exchangeRaw(
      `http://127.0.0.1:${previews.port}`,
      `GET / HTTP/1.1\r\nHost: ${previews.host}\r\nConnection: Upgrade\r\nUpgrade: ${protocol}\r\n\r\n`,
    );

  it('to another protocol than the client asked for is 502', async () => {
    for (const chosen of ['h2c', 'websocket, h2c', '']) {
      const previews = await startPreviews(
        rawSandbox(`HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: ${chosen}\r\n\r\nraw bytes`),
      );
      const answer = await upgrade(previews, 'websocket');
      expect(answer).toMatch(/^HTTP\/1.1 502 /);
      expect(answer).not.toContain('raw bytes');
    }
  });

  it('to HTTP/2 is not asked of the server', async () => {
    let head = '';
    const previews = await startPreviews(
      rawSandbox((socket, data) => {
        head = data;
        socket.end(`${OK}Content-Length: 2\r\n\r\nok`);
      }),
    );
    const offer = `GET / HTTP/1.1\r\nHost: ${previews.host}\r\nConnection: Upgrade, close\r\nUpgrade: h2c\r\n\r\n`;
    expect(await exchangeRaw(`http://127.0.0.1:${previews.port}`, offer)).toContain('ok');
    expect(head).not.toMatch(/upgrade|h2c/i);
  });

  it('to a protocol that the client knows passes bytes both ways', async () => {
    const previews = await startPreviews(
      rawSandbox((socket) => {
        socket.write('HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nX-A: b\r\n\r\nfirst ');
        socket.on('data', (data) => socket.end(data));
      }),
    );
    const { host, port } = previews;
    const answer = await exchangeRaw(
      `http://127.0.0.1:${port}`,
      [`GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n`, 'echo'],
      100,
    );
    expect(answer).toMatch(/^HTTP\/1.1 101 Switching Protocols\r\n[\s\S]*X-A: b[\s\S]*first echo$/);
  });

  it('that is open ends when the listener closes', async () => {
    const previews = await startPreviews(
      rawSandbox('HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n'),
    );
    const { socket, whole } = await openRaw(`http://127.0.0.1:${previews.port}`);
    socket.write(
      `GET / HTTP/1.1\r\nHost: ${previews.host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n`,
    );
    await once(socket, 'data');
    await previews.close();
    expect(await whole).toContain('101 Switching Protocols');
    expect(previews.meters.open).toBe(0);
  });
});
