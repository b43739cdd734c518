import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Row, RuntimeName, Session } from '../clients/row.js';
import { SESSIONS } from '../clients/table.js';
import type { Client } from './client.js';
import { installFromNpm, installFromPyPI } from './clients-install.js';
import { destroyAll } from './docker-service.js';
import type { TestService } from './service.js';

const [npm, pypi] = await Promise.all([installFromNpm(), installFromPyPI()]);

const missing: Record<Row['client'], string | undefined> = {
  cli: npm.missing,
  node: npm.missing,
  python: pypi.missing,
  'newest-cli': pypi.missing,
};
/** Only these tests need Python: without it, they are always skipped. */
const isRequired = process.env['SANDKEEP_TEST_CLIENTS'] === 'required';

for (const reason of [npm.missing, pypi.missing]) {
  if (reason !== undefined) console.warn(`tests with the official clients are SKIPPED: ${reason}`);
}

/** The reason why tests of a client are skipped: as `testClients` decides it. */
export function whyMissing(client: Row['client']): string | undefined {
  const reason = missing[client];
  return client === 'python' || client === 'newest-cli' || !isRequired ? reason : undefined;
}

/**
 * Adds a test for each session of the table, on the service that `start` starts. Without npm they are skipped with
 * the reason; with SANDKEEP_TEST_CLIENTS=required, as in CI, they fail.
 */
export function testClients(title: string, runtime: RuntimeName, start: () => Promise<TestService>): void {
  describe(title, () => {
    let service: TestService;
    const clients: Client[] = [];

    beforeAll(async () => {
      service = await start();
    });

    afterAll(async () => {
      if (service) await destroyAll(service, ...clients);
      await service?.close();
    });

    for (const session of SESSIONS) {
      const rows = session.rows.filter((row) => row[runtime]);
      const reason = rows.map(({ client }) => whyMissing(client)).find((reason) => reason !== undefined);
      if (rows.length === 0) continue;
      if (reason !== undefined) {
        it.skip(`${session.title} — SKIPPED: ${reason}`);
        continue;
      }
      it.concurrent(session.title, async () => {
        const client = await service.newOrg();
        clients.push(client);
        expect(await runSession(session, runtime, { url: service.url, key: client.key })).toEqual([]);
      });
    }
  });
}

/** Runs the rows. Returns those with an unexpected outcome. */
async function runSession(
  { files = {}, rows }: Session,
  runtime: RuntimeName,
  { url, key }: { url: string; key: string },
): Promise<unknown[]> {
  const home = mkdtempSync(join(tmpdir(), 'sandkeep-clients-'));
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(home, name)), { recursive: true });
    writeFileSync(join(home, name), text);
  }
  const env = { MSB_BACKEND: 'cloud', MSB_API_URL: url, MSB_API_KEY: key, HOME: home };
  const wrong: unknown[] = [];
  for (const row of rows) {
    const expected = row[runtime];
    if (!expected) continue;
    const { exit, text } = await runRow(row, env);
    const isRight =
      typeof expected.output === 'string'
        ? text.replaceAll(/\s+/g, ' ') === expected.output
        : expected.output.test(text);
    if (exit !== expected.exit || !isRight) wrong.push({ run: row.run, exit, text, expected });
  }
  rmSync(home, { recursive: true });
  return wrong;
}

interface Invocation {
  program: string;
  args: string[];
  cwd?: string;
  env?: Record<string, string>;
}

/** The process of a row. Programs have the SDK imported, and print an error as its name and message. */
function invocationOf({ client, run, typed }: Row): Invocation {
  if (client === 'python') {
    if (pypi.missing !== undefined) throw new Error(pypi.missing);
    // The process exits inside main: threads of the SDK sometimes abort an interpreter that shuts down.
    const lines = [
      'import asyncio, os',
      'from microsandbox import Sandbox, Snapshot, Volume',
      'async def main():',
      '  try:',
      `    ${run}`,
      '  except Exception as error:',
      "    print(f'{type(error).__name__}: {error}', flush=True)",
      '    os._exit(1)',
      "  print('', end='', flush=True)",
      '  os._exit(0)',
      'asyncio.run(main())',
    ];
    const env = { PYTHONPATH: pypi.folder };
    return { program: pypi.python, args: ['-c', lines.join('\n')], env };
  }
  if (client === 'cli' || client === 'newest-cli') {
    const { msb, missing } = client === 'cli' ? npm : pypi;
    if (msb === undefined) throw new Error(missing);
    const words = [...run.matchAll(/'([^']*)'|[^ ]+/g)].map(([word, quoted]) => quoted ?? word);
    if (typed === undefined) return { program: msb, args: words };
    const command = [msb, ...words].map((word) => `'${word}'`).join(' ');
    const args = ['--quiet', '--return', '--command', `stty rows 30 cols 100; exec ${command}`, '/dev/null'];
    return { program: 'script', args };
  }
  if (npm.missing !== undefined) throw new Error(npm.missing);
  const script = `import { Sandbox, Volume } from 'microsandbox';
    try { ${run} } catch ({ name, message }) { console.error(name + ': ' + message); process.exitCode = 1; }`;
  return { program: process.execPath, args: ['--input-type=module', '--eval', script], cwd: npm.folder };
}

/** The shell in a terminal prints it. */
const PROMPT = '/ # ';
/** The CLI adds the duration of a slow operation. */
const TOOK = / \(\d+(\.\d+)?m?s\)/g;

/** Runs a command or program, with these variables. */
export function runRow(
  row: Row,
  given: Record<string, string>,
): Promise<{ exit: number | null; text: string }> {
  const { program, args, cwd = given['HOME'], env } = invocationOf(row);
  const child = spawn(program, args, { env: { ...given, PATH: process.env['PATH'], ...env }, cwd });
  let text = '';
  const typed = [...(row.typed ?? [])];
  let begin = 0;
  child.stdout.on('data', (chunk: Buffer) => {
    text += chunk.toString();
    if (typed.length === 0 || !text.slice(begin).includes(PROMPT)) return;
    begin = text.length;
    child.stdin.write(`${typed.shift()}\n`);
  });
  child.stderr.on('data', (chunk: Buffer) => (text += chunk.toString()));
  // A command that does not read closes its end of the pipe.
  child.stdin.on('error', () => undefined);
  const input = row.zeroes === undefined ? row.input : Buffer.alloc(row.zeroes);
  if (row.typed === undefined && row.leavesInputOpen !== true) child.stdin.end(input);
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (exit) => resolve({ exit, text: text.replaceAll(TOOK, '').trim() }));
  });
}
