import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { expectRefused, run, runJson } from '../support/cli.js';
import type { Client } from '../support/client.js';
import { until } from '../support/polling.js';
import { smallRequest } from '../support/sandbox-requests.js';
import { startTestService, type TestService } from '../support/service.js';

let service: TestService;
let client: Client;
let env: Record<string, string>;
let folder: string;
beforeAll(async () => {
  service = await startTestService();
  client = await service.newOrg();
  env = { SANDKEEP_URL: `${service.url}/`, SANDKEEP_API_KEY: client.key };
  folder = mkdtempSync(join(tmpdir(), 'sandkeep-pools-'));
});
afterAll(async () => {
  await service.close();
  rmSync(folder, { recursive: true, force: true });
});

const pools = (...args: string[]) => run(['pools', ...args], { env });
const poolsJson = (...args: string[]) => runJson(['pools', ...args], { env });
const SMALL = ['--image', 'busybox', '--vcpus', '1', '--memory-mib', '64'];

describe('sandkeep pools', () => {
  test('makes, shows, changes, lists and deletes a pool', async () => {
    expect((await pools('list')).out).toBe('no pools\n');
    const made = await poolsJson('put', 'tiny', ...SMALL, '--size', '2', '--most', '5');
    expect(made).toMatchObject({ name: 'tiny', image: 'busybox', size: 2, most: 5 });
    expect(made.resources).toMatchObject({ vcpus: 1, memory_mib: 64 });
    const ready = await until(
      () => poolsJson('show', 'tiny'),
      (pool) => pool.ready === 2,
    );
    const shown = await pools('show', 'tiny');
    expect(shown.out).toMatch(
      /^NAME +IMAGE +SIZE +READY +STARTING +GIVEN +MOST +PROBLEM\ntiny +busybox +2 +2 +0 +0 +5/,
    );
    for (const { id } of ready.sandboxes) expect(shown.out).toContain(id);
    const changed = await pools('put', 'tiny', ...SMALL, '--size', '1', '--most', 'none');
    expect(changed).toMatchObject({
      code: 0,
      err: '',
      out: expect.stringMatching(/\ntiny +busybox +1 .* none/),
    });
    expect((await poolsJson('list')).map(({ name }: { name: string }) => name)).toEqual(['tiny']);
    expect((await pools('delete', 'tiny')).out).toBe('the pool "tiny" is deleted\n');
    expectRefused(await pools('show', 'tiny'), 'pool');
  });

  test('reads a pool from a file or the input, and its options replace fields of it', async () => {
    const { name: _, ...request } = smallRequest('x');
    const path = join(folder, 'pool.json');
    const resources = { vcpus: 1, memory_mib: 64 };
    writeFileSync(path, JSON.stringify({ ...request, resources, size: 1, network: { enabled: false } }));
    const made = await poolsJson('put', 'filed', '--file', path, '--size', '0', '--vcpus', '2');
    expect(made).toMatchObject({ size: 0, resources: { ...resources, vcpus: 2 } });
    expect(made.network.enabled).toBe(false);
    const input = JSON.stringify({ ...request, size: 0 });
    const piped = await runJson(['pools', 'put', 'piped', '--file', '-', '--network', '{"enabled":false}'], {
      env,
      input,
    });
    expect(piped.network.enabled).toBe(false);
    const names = (await poolsJson('list')).map(({ name }: { name: string }) => name);
    expect(names).toEqual(['filed', 'piped']);
  });

  test('says what is wrong', async () => {
    expectRefused(await pools('put', 'x', '--size', '1'), 'give --image and --size, or --file');
    expectRefused(await pools('put', 'x', ...SMALL, '--size', 'many'), 'must be a whole number');
    expectRefused(
      await pools('put', 'x', ...SMALL, '--size', '1', '--network', '[]'),
      'must be a JSON object',
    );
    expectRefused(await pools('put', 'x', '--file', join(folder, 'none')), 'cannot read the pool');
    expectRefused(await pools('put', 'x', ...SMALL, '--size', '101'), 'size');
    expectRefused(await run(['pools', 'list'], { env: { SANDKEEP_URL: service.url } }), 'no API key');
    const wrong = { ...env, SANDKEEP_API_KEY: 'skp_wrong' };
    expectRefused(await run(['pools', 'list'], { env: wrong }), 'the service refuses the API key');
    const away = { ...env, SANDKEEP_URL: 'http://127.0.0.1:1' };
    expectRefused(await run(['pools', 'list'], { env: away }), 'cannot reach the service');
  });

  test('has help for each command', async () => {
    for (const name of ['list', 'show', 'put', 'delete']) {
      const { code, out } = await pools(name, '--help');
      expect([code, out]).toEqual([0, expect.stringContaining(`Usage: sandkeep pools ${name}`)]);
      for (const option of ['--url', '--key-file', '--json']) expect(out).toContain(option);
    }
  });
});
