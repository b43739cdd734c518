import { expect, test } from 'vitest';
import { makeClient } from '../support/client.js';
import { describeDocker, docker, execIn, IMAGE, makeImage, SOCKET } from '../support/docker.js';
import { freePort } from '../support/free-port.js';
import { connectHttp, connectStdio } from '../support/mcp.js';
import { until as untilValue } from '../support/polling.js';
import { cleanUp, kill, launch, makeFolder, ready, stop, until, type Served } from '../support/processes.js';

/** How long the official client waits for the rest of an answer that broke off, in milliseconds. */
const CLIENT_PATIENCE_MS = 30_000;

function serveOnDocker(folder: string, port: string): Promise<Served> {
  const runtime = ['--runtime', 'docker', '--docker-socket', SOCKET, '--docker-network', 'none'];
  const fixed = [
    '--json',
    '--port',
    port,
    '--data-dir',
    folder,
    '--log-level',
    'warn',
    '--preview-host',
    'none',
  ];
  return ready(launch(['serve', ...fixed, ...runtime]), folder);
}

describeDocker('a kill of the service', () => {
  test('during calls is told to the model, and the same agents go on with the next process', async () => {
    makeImage();
    const folder = makeFolder();
    // The next process has the port of the first. No connection takes it in between.
    const port = String(await freePort());
    let service = await serveOnDocker(folder, port);
    const { url, firstKey: key } = service;
    const client = makeClient(url, { org: { id: '', name: '', slug: '' }, key: key!, keyId: '' });
    const [byHttp, byStdio] = [await connectHttp(url, key!), await connectStdio(url, key!)];
    const session = byHttp.sessionId();
    try {
      const { value } = await byHttp.call('create_sandbox', {
        image: IMAGE,
        pull_policy: 'never',
        name: 'box',
      });
      const sleeping = { sandbox: 'box', command: 'touch /begun-$KIND; exec sleep 600', timeout_secs: 700 };
      const broken = byHttp
        .call('run_command', { ...sleeping, env: { KIND: 'http' } }, { timeout: CLIENT_PATIENCE_MS })
        .catch(String);
      const told = byStdio.call('run_command', { ...sleeping, env: { KIND: 'stdio' } });
      await untilValue(
        () => execIn(value.id, 'sh', '-c', 'ls / | tr "\\n" " "'),
        (names) => names.includes('begun-http') && names.includes('begun-stdio'),
      );
      kill('SIGKILL', service.pid);
      await service.exited;
      const { text, isError } = await told;
      expect([isError, text]).toEqual([true, expect.stringContaining('may have been carried out or not')]);
      const away = await byStdio.call('list_sandboxes');
      expect([away.isError, away.text]).toEqual([true, expect.stringContaining('ECONNREFUSED')]);

      service = await serveOnDocker(folder, port);
      // The sandbox has run on. Both agents continue, and the session of the first one holds.
      for (const agent of [byHttp, byStdio]) {
        const shown = await untilValue(
          () => agent.call('get_sandbox', { sandbox: 'box' }),
          ({ value: sandbox }) => sandbox?.status === 'running',
        );
        expect(shown.value.id).toBe(value.id);
        const ran = await untilValue(
          () => agent.call('run_command', { sandbox: 'box', command: 'echo alive' }),
          ({ isError: isRefused }) => !isRefused,
        );
        expect(ran.text).toContain('alive');
      }
      expect(byHttp.sessionId()).toBe(session);
      // The official client does not notice a stream that broke off, and gives up in time.
      expect(await broken).toMatch(/timed out|terminated|closed/i);
    } finally {
      await byHttp.close();
      await byStdio.close();
      const { body } = await client.get('/v1/sandboxes/by-name/box');
      await client.delete('/v1/sandboxes/by-name/box');
      const label = [`dev.sandkeep.sandbox=${body.id}`];
      await until('the container is gone', async () => {
        return (await docker.listContainers({ all: true, filters: { label } })).length === 0;
      });
      await stop(service);
      await cleanUp(folder);
    }
  });
});
