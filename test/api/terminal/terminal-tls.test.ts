import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { request } from 'node:https';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { expect, onTestFinished, test } from 'vitest';
import { Authority, pairFiles } from '../../support/certificates.js';
import { describeDocker, IMAGE, makeImage, SOCKET, containerOf } from '../../support/docker.js';
import { describeHaproxy, startHaproxy } from '../../support/haproxy.js';
import { startInside } from '../../support/inside.js';
import { cleanUp, kill, launch, makeFolder, ready, stop, until } from '../../support/processes.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService } from '../../support/service.js';
import { dialTerminal, openTerminal, shows, statusOf } from '../../support/terminal-client.js';

describeDocker('a terminal over the TLS of the service', () => {
  test('opens, stays open over a renewal of the certificate, and opens with the renewed one', async () => {
    makeImage();
    const folder = makeFolder();
    onTestFinished(() => cleanUp(folder));
    const authority = new Authority();
    const ca = authority.root;
    const files = pairFiles(authority.issue());
    const service = await ready(
      launch([
        'serve',
        '--json',
        '--port',
        '0',
        '--log-level',
        'warn',
        '--data-dir',
        join(folder, 'data'),
        '--runtime',
        'docker',
        '--docker-socket',
        SOCKET,
        '--docker-network',
        'none',
        '--tls-cert',
        files.cert,
        '--tls-key',
        files.key,
      ]),
      folder,
    );
    const ask = async (method: string, path: string, body?: object) => {
      const headers = { authorization: `Bearer ${service.firstKey!}`, 'content-type': 'application/json' };
      const sent = request(`${service.url}${path}`, { ca, method, headers, agent: false });
      const [answer] = (await once(sent.end(body && JSON.stringify(body)), 'response')) as [IncomingMessage];
      const received = await text(answer);
      return { status: answer.statusCode!, body: received === '' ? undefined : JSON.parse(received) };
    };
    const made = await ask(
      'POST',
      '/v1/sandboxes?start=true&wait_for=running',
      smallRequest('box', {
        image: { type: 'oci', reference: IMAGE },
        pull_policy: 'never',
        runtime: { cmd: ['sleep', '600'] },
      }),
    );
    const { id } = made.body;
    try {
      expect(made.body).toMatchObject({ status: 'running' });
      const dial = async (origin = service.url) => {
        const { body } = await ask('POST', `/v1/sandboxes/${id}/terminal-tickets`, {});
        return dialTerminal(service.url, id, body.ticket, { ca, origin });
      };
      const first = await openTerminal(await dial());
      first.socket.send(Buffer.from('echo "be""fore"\n'));
      await shows(first, 'before');
      expect(await statusOf(await dial(service.url.replace('https', 'http')))).toBe(403);

      files.write(authority.issue());
      kill('SIGHUP', service.pid);
      let second = first;
      await until('a terminal has the renewed certificate', async () => {
        second = await openTerminal(await dial());
        if (second.serial === first.serial) second.socket.terminate();
        return second.serial !== first.serial;
      });
      expect([first.serial, second.serial]).toEqual([expect.any(String), expect.any(String)]);
      for (const terminal of [first, second]) {
        terminal.socket.send(Buffer.from('echo "af""ter"; exit 3\n'));
        expect(await terminal.closed).toBe(1000);
        expect(terminal.text()).toContain('after');
        expect(terminal.messages).toEqual([{ type: 'exited', exit_code: 3 }]);
      }
    } finally {
      await ask('DELETE', `/v1/sandboxes/${id}`);
      await until('the container is gone', async () => (await containerOf(id)) === undefined);
      await stop(service);
    }
  });

  describeHaproxy('and behind HAProxy, which ends the TLS', () => {
    test('opens at the process of the engine and at one that forwards', async () => {
      const settings = { trustedProxies: ['127.0.0.1'] };
      const inside = await startInside({ settings });
      onTestFinished(() => inside.close());
      const front = await startTestService({ beside: inside.service, worker: false, settings });
      const authority = new Authority();
      const ports = [inside.service, front].map(({ url }) => Number(new URL(url).port));
      const haproxy = await startHaproxy(ports, authority.issue());
      try {
        const id = await inside.start('box');
        const url = `https://127.0.0.1:${haproxy.port}`;
        const dial = async (origin: string) => {
          const { body } = await inside.client.post(`/v1/sandboxes/${id}/terminal-tickets`, {});
          return dialTerminal(url, id, body.ticket, { ca: authority.root, origin });
        };
        // The proxy sends a connection to the process with the fewest, so two open ones are at both.
        const terminals = [await openTerminal(await dial(url)), await openTerminal(await dial(url))];
        for (const terminal of terminals) {
          terminal.socket.send(Buffer.from('echo "over "TLS; exit 4\n'));
          expect(await terminal.closed).toBe(1000);
          expect(terminal.text()).toContain('over TLS');
          expect(terminal.messages).toEqual([{ type: 'exited', exit_code: 4 }]);
        }
        expect(await haproxy.sessions()).toEqual([1, 1]);
        expect(await statusOf(await dial(url.replace('https', 'http')))).toBe(403);
      } finally {
        await haproxy.close();
        await front.close();
      }
    });
  });
});
