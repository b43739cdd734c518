import { execFile, spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { CACHE, isNewest } from '../support/clients-install.js';
import type { Client } from '../support/client.js';
import { destroyAll, onDocker } from '../support/docker-service.js';
import { describeDocker, makeImage } from '../support/docker.js';
import { startTestService, type TestService } from '../support/service.js';
import { VERSIONS } from './versions.js';

/** The first build takes some minutes. */
const BUILD_MS = 30 * 60_000;
const isWanted = process.env['SANDKEEP_TEST_CRATE'] === 'required';
const execute = promisify(execFile);

/** A program with the Rust SDK. */
if (!isWanted) {
  test.skip('the Rust SDK — SKIPPED: its build takes minutes; SANDKEEP_TEST_CRATE=required runs it');
} else {
  describeDocker('the Rust SDK', () => {
    let service: TestService;
    let client: Client;
    let program: string;
    beforeAll(async () => {
      // First: the build blocks this process.
      program = build();
      makeImage();
      service = await startTestService(onDocker({ capacity: { vcpus: 100, memoryMib: 100_000 } }));
      client = await service.newOrg();
    }, BUILD_MS);
    afterAll(async () => {
      await destroyAll(service, client);
      await service.close();
    });

    test('enters a sandbox that another process made, with its directory, user and command', async () => {
      const { stdout } = await execute(program, {
        env: { MSB_BACKEND: 'cloud', MSB_API_URL: service.url, MSB_API_KEY: client.key, HOME: '/tmp' },
      });
      expect(stdout.trim().split('\n')).toEqual([
        'created web',
        String.raw`exec "/tmp\n1000\n" "err\n" 3`,
        String.raw`default "hello\n/tmp\n"`,
        'file "hello" 1',
        'stopped Stopped',
        'removed: sandbox not found: GET /v1/sandboxes/by-name/:name: resource not found',
      ]);
    });
  });
}

/** Builds the program in the cache, and returns its path. */
function build(): string {
  const folder = join(CACHE, 'crate-client');
  mkdirSync(join(folder, 'src'), { recursive: true });
  copyFileSync(join(PACKAGE_ROOT, 'test', 'clients', 'crate', 'main.rs'), join(folder, 'src', 'main.rs'));
  const version = isNewest ? '*' : `=${VERSIONS.crate}`;
  const manifest = [
    '[package]',
    'name = "crate-client"',
    'version = "0.0.0"',
    'edition = "2024"',
    '[workspace]',
    '[dependencies]',
    `microsandbox = { version = "${version}", default-features = false, features = ["cloud", "net"] }`,
    'tokio = { version = "1", features = ["macros", "rt-multi-thread"] }',
    '',
  ];
  writeFileSync(join(folder, 'Cargo.toml'), manifest.join('\n'));
  const built = spawnSync('cargo', ['build', '--quiet'], { cwd: folder, encoding: 'utf8' });
  if (built.status !== 0) throw new Error(`cargo cannot build the program: ${built.stderr ?? built.error}`);
  return join(folder, 'target', 'debug', 'crate-client');
}
