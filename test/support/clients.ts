import { execFile, spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { PACKAGE_ROOT } from '../../src/lib/root.js';
import type { Row, RuntimeName, Session } from '../clients/row.js';
import { CLIENT_VERSION, SESSIONS } from '../clients/table.js';
import type { Client } from './client.js';
import { destroyAll } from './docker-service.js';
import type { TestService } from './service.js';

/** The packages with the binaries, by platform. */
const PLATFORMS: Readonly<Record<string, string>> = {
  'linux-x64': 'linux-x64-gnu',
  'linux-arm64': 'linux-arm64-gnu',
  'darwin-arm64': 'darwin-arm64',
};
const platform = PLATFORMS[`${process.platform}-${process.arch}`];
const binaries = `@superradcompany/microsandbox-${platform}`;
const cache = join(PACKAGE_ROOT, 'node_modules', '.cache');
/** Kept from one test run to the next: the packages have 90 MB. */
const installed = join(cache, `microsandbox-${CLIENT_VERSION}`);
const msbProgram = join(installed, 'node_modules', binaries, 'bin', 'msb');

const reason = await install();

/**
 * Tests with the official clients. Without npm they are skipped and say so; with SANDKEEP_TEST_CLIENTS=required, as in
 * CI, they fail instead.
 */
export const describeClients =
  reason === undefined || process.env['SANDKEEP_TEST_CLIENTS'] === 'required'
    ? describe
    : (name: string, body: () => void) => describe.skip(`${name} — SKIPPED: ${reason}`, body);

if (reason !== undefined) console.warn(`the tests with the official clients are SKIPPED: ${reason}`);

/** Returns why the clients cannot be used, or undefined. */
async function install(): Promise<string | undefined> {
  if (platform === undefined) return `there are no clients for ${process.platform} ${process.arch}`;
  if (existsSync(installed)) return undefined;
  mkdirSync(cache, { recursive: true });
  const folder = mkdtempSync(join(cache, 'installing-'));
  // The package of the platform is named too: as an optional one, npm leaves it out where Node is older than 22.
  const packages = ['microsandbox', binaries].map((name) => `${name}@${CLIENT_VERSION}`);
  const flags = ['--prefix', folder, '--ignore-scripts', '--no-save', '--no-audit', '--no-fund'];
  try {
    await promisify(execFile)('npm', ['install', ...flags, '--fetch-retries=1', ...packages], {
      ...{ cwd: folder, timeout: 240_000 },
    });
    // Another test file may have been quicker.
    if (!existsSync(installed)) renameSync(folder, installed);
    return undefined;
  } catch (error) {
    if (existsSync(installed)) return undefined;
    return `npm cannot install ${packages.join(' and ')} (${(error as Error).message.trim().split('\n').at(-1)})`;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** One test a session of the table, on the service that `start` starts. */
export function testSessions(runtime: RuntimeName, start: () => Promise<TestService>): void {
  let service: TestService;
  const clients: Client[] = [];

  beforeAll(async () => {
    if (reason !== undefined) throw new Error(reason);
    service = await start();
  });

  afterAll(async () => {
    if (service) await destroyAll(service, ...clients);
    await service?.close();
  });

  const sessions = SESSIONS.filter(({ rows }) => rows.some((row) => row[runtime]));
  for (const session of sessions) {
    it.concurrent(session.title, { timeout: 300_000 }, async () => {
      const client = await service.newOrg();
      clients.push(client);
      expect(await runSession(session, runtime, { url: service.url, key: client.key })).toEqual([]);
    });
  }
}

/** Runs the rows; returns what was other than expected. */
async function runSession(
  { files = {}, rows }: Session,
  runtime: RuntimeName,
  { url, key }: { url: string; key: string },
): Promise<unknown[]> {
  const home = mkdtempSync(join(tmpdir(), 'sandkeep-clients-'));
  for (const [name, text] of Object.entries(files)) writeFileSync(join(home, name), text);
  const env = { MSB_BACKEND: 'cloud', MSB_API_URL: url, MSB_API_KEY: key, HOME: home };
  const wrong: unknown[] = [];
  for (const row of rows) {
    const expected = row[runtime];
    if (!expected) continue;
    const { exit, text } = await run(row, env);
    const isRight =
      typeof expected.output === 'string'
        ? text.replaceAll(/\s+/g, ' ') === expected.output
        : expected.output.test(text);
    if (exit !== expected.exit || !isRight) wrong.push({ run: row.run, exit, text, expected });
  }
  rmSync(home, { recursive: true });
  return wrong;
}

/** How long something took, which the CLI adds where that was long. */
const TOOK = / \(\d+(\.\d+)?m?s\)/g;
/** What a program in the table may name. */
const IMPORTS = "import { Sandbox, Volume } from 'microsandbox';";

function run(
  { client, run }: Row,
  env: Record<string, string>,
): Promise<{ exit: number | null; text: string }> {
  const program = `${IMPORTS} try { ${run} } catch ({ name, message }) { console.error(name + ': ' + message); process.exitCode = 1; }`;
  const child =
    client === 'cli'
      ? spawn(msbProgram, run.split(' '), { env, cwd: env['HOME'] })
      : spawn(process.execPath, ['--input-type=module', '--eval', program], { env, cwd: installed });
  let text = '';
  child.stdout.on('data', (chunk: Buffer) => (text += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (text += chunk.toString()));
  child.stdin.end();
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (exit) => resolve({ exit, text: text.replaceAll(TOOK, '').trim() }));
  });
}
