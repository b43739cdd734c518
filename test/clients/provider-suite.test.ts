import { createHash, randomBytes } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { installFromNpm } from '../support/clients-install.js';
import { agentFiles, describeDocker, execIn, IMAGE } from '../support/docker.js';
import { startInside, type Inside } from '../support/inside.js';
import { until } from '../support/polling.js';

const npm = await installFromNpm();
const isRequired = process.env['SANDKEEP_TEST_CLIENTS'] === 'required';
const EXECS = 1_000;
const AT_ONCE = 10;

/** The assertions of the test suites with which sandbox providers are compared, by the official Node SDK. */
if (npm.missing !== undefined && !isRequired) {
  test.skip(`the assertions of provider suites — SKIPPED: ${npm.missing}`);
} else {
  describeDocker('a provider of sandboxes', () => {
    let inside: Inside;
    let sdk: any;
    let sandbox: any;
    let id: string;

    beforeAll(async () => {
      if (npm.missing !== undefined) throw new Error(npm.missing);
      inside = await startInside();
      sdk = await import(join(npm.folder, 'node_modules', 'microsandbox', 'dist', 'index.js'));
      sdk.setDefaultBackend({ kind: 'cloud', url: inside.client.url, apiKey: inside.client.key });
      sandbox = await create('suite');
      id = sandbox.id.replace('cloud:', '');
    });
    afterAll(() => inside?.close());

    const create = (name: string): Promise<any> =>
      sdk.Sandbox.builder(name).image(IMAGE).cpus(1).memory(128).create();
    const processes = () => execIn(id, 'busybox', 'ps');

    async function sh(script: string): Promise<{ code: number; stdout: string; stderr: string }> {
      const output = await sandbox.exec('sh', ['-c', script]);
      return { code: output.code, stdout: output.stdout(), stderr: output.stderr() };
    }

    test('creates, finds, lists and destroys a sandbox, and it is gone', async () => {
      const made = await create('short');
      expect((await sdk.Sandbox.get('short')).id).toBe(made.id);
      const names = async () => (await sdk.Sandbox.list()).sandboxes.map(({ name }: any) => name).toSorted();
      expect(await names()).toEqual(['short', 'suite']);
      const handle = await sdk.Sandbox.get('short');
      await handle.destroy();
      // The client looks the sandbox up first, so a repetition finds out that it is gone.
      await expect(handle.destroy()).rejects.toThrow(/not found/);
      await expect(sdk.Sandbox.get('short')).rejects.toThrow(/not found/);
      expect(await names()).toEqual(['suite']);
    });

    test('takes a started sandbox of a pool, without a change of the client', async () => {
      const request = {
        image: { type: 'oci', reference: IMAGE },
        resources: { vcpus: 1, memory_mib: 128 },
        size: 1,
      };
      await inside.client.request('PUT', '/v1/pools/own', { body: request });
      await until(
        async () => (await inside.client.get('/v1/pools/own')).body,
        ({ ready }) => ready === 1,
      );
      let attempt = 0;
      let made: any;
      const create = async () => {
        attempt += 1;
        const name = `pooled-${attempt}`;
        made = await sdk.Sandbox.builder(name)
          .image(IMAGE)
          .cpus(1)
          .memory(128)
          .env('GREETING', 'hi')
          .create();
        const { body } = await inside.client.get(`/v1/sandboxes/by-name/${name}`);
        if (body.source?.start !== 'warm') await (await sdk.Sandbox.get(name)).destroy();
        return body;
      };
      // No container of the pool is ready while a busy machine renews the lease of the worker late.
      const body = await until(create, ({ source }) => source?.start === 'warm');
      await inside.client.delete('/v1/pools/own');
      expect(body.source).toEqual({ start: 'warm', pool: 'own', reason: null, differs: [] });
      expect((await made.exec('sh', ['-c', 'echo "$GREETING"'])).stdout()).toBe('hi\n');
      await (await sdk.Sandbox.get(body.name)).destroy();
    });

    test('runs commands with their exit code, output and error output', async () => {
      expect(await sh('echo hello')).toEqual({ code: 0, stdout: 'hello\n', stderr: '' });
      expect(await sh('echo out; echo err >&2; exit 3')).toEqual({
        code: 3,
        stdout: 'out\n',
        stderr: 'err\n',
      });
      expect((await sh('exit 7')).code).toBe(7);
      expect((await sh('no-such-command')).code).toBe(127);
      await expect(sandbox.exec('no-such-command')).rejects.toThrow(/No such file or directory/);
    });

    test('passes arguments on as they are', async () => {
      const args = ['two  spaces', '$HOME', '> file', '&& exit 9', '"quoted"', "it's", '*', '', 'ü'];
      const output = await sandbox.exec('sh', ['-c', 'for a in "$@"; do echo "[$a]"; done', 'sh', ...args]);
      expect(output.stdout()).toBe(args.map((arg) => `[${arg}]\n`).join(''));
    });

    test('leaves a background command running, and ends one by its time limit', async () => {
      expect(await sh('sleep 91 >/dev/null 2>&1 & echo started')).toMatchObject({
        code: 0,
        stdout: 'started\n',
      });
      await until(processes, (text) => text.includes('sleep 91'));
      const limited = sandbox.execWith('sh', (e: any) => e.args(['-c', 'sleep 92; echo late']).timeout(500));
      await expect(limited).rejects.toThrow(/timed out/);
      await until(processes, (text) => !text.includes('sleep 92'), 30_000);
    });

    test('delivers output before the command exits', async () => {
      const handle = await sandbox.execStreamWith('sh', (e: any) =>
        e.args(['-c', 'echo early; read x; exit 5']).stdinPipe(),
      );
      const stdin = await handle.takeStdin();
      const kinds: string[] = [];
      for await (const event of handle) {
        kinds.push(event.kind);
        // The command waits for this.
        if (event.kind === 'stdout') await stdin.write('\n');
        if (event.kind === 'exited') expect(event.code).toBe(5);
      }
      expect(kinds).toEqual(['started', 'stdout', 'exited']);
    });

    test('writes, reads, finds, lists and removes files', async () => {
      const fs = sandbox.fs();
      await fs.mkdir('/tmp/suite');
      await fs.write('/tmp/suite/a.txt', 'hello');
      expect(await fs.readToString('/tmp/suite/a.txt')).toBe('hello');
      expect([await fs.exists('/tmp/suite/a.txt'), await fs.exists('/tmp/suite/b.txt')]).toEqual([
        true,
        false,
      ]);
      expect((await fs.list('/tmp/suite')).map(({ path }: any) => path)).toEqual(['/tmp/suite/a.txt']);
      await fs.remove('/tmp/suite/a.txt');
      await expect(fs.read('/tmp/suite/a.txt')).rejects.toThrow(/No such file/);
      await fs.removeDir('/tmp/suite');
      expect(await fs.exists('/tmp/suite')).toBe(false);
    });

    test('keeps every byte of a file of 64 MiB in both directions', async () => {
      const fs = sandbox.fs();
      const data = randomBytes(64 * 1024 * 1024);
      const hash = createHash('sha256').update(data).digest('hex');
      await fs.write('/tmp/large', data);
      expect((await sh('busybox sha256sum /tmp/large')).stdout).toContain(hash);
      expect(
        createHash('sha256')
          .update(await fs.read('/tmp/large'))
          .digest('hex'),
      ).toBe(hash);
      await fs.remove('/tmp/large');
    });

    test('has nothing left of a thousand commands', async () => {
      async function run(count: number): Promise<void> {
        let next = 0;
        async function loop(): Promise<void> {
          for (let n = next++; n < count; n = next++) {
            const output = await sandbox.exec('echo', [String(n)]);
            expect([output.code, output.stdout()]).toEqual([0, `${n}\n`]);
          }
        }
        await Promise.all(Array.from({ length: AT_ONCE }, loop));
      }
      const descriptors = () => readdirSync('/proc/self/fd').length;
      const open = async () => {
        const { rows } = await inside.service.ctx.pool.query(
          'select count(*)::int as count from sandbox_sessions',
        );
        return rows[0]!['count'];
      };
      const settled = () => until(open, (count) => count === 0, 30_000);
      const lines = async () => (await processes()).trim().split('\n').length;
      await run(3 * AT_ONCE);
      await settled();
      const before = { lines: await lines(), descriptors: descriptors() };
      await run(EXECS);
      await settled();
      // A session is over before the table of processes shows it. The first count may have such processes too.
      await until(lines, (count) => count <= before.lines, 30_000);
      // The connections of the service and the SDK close a moment later, and pools keep a few.
      await until(
        () => Promise.resolve(descriptors()),
        (count) => count < before.descriptors + 2 * AT_ONCE,
        30_000,
      );
      await until(
        async () => (await agentFiles(id)).length,
        (count) => count < 20,
      );
    });
  });
}
