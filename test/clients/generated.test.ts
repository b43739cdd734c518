import { execFile } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { VERSION } from '../../src/lib/version.js';
import type { Client } from '../support/client.js';
import {
  buildPythonClient,
  buildTypeScriptClient,
  compileProgram,
  installPythonTools,
  lintDescription,
  installTypeScriptTools,
} from '../support/generated-clients.js';
import { startTestService, type TestService } from '../support/service.js';

const execute = promisify(execFile);
const CLIENTS = join(PACKAGE_ROOT, 'clients');
const isRequired = process.env['SANDKEEP_TEST_CLIENTS'] === 'required';
const [node, python] = [await installTypeScriptTools(), await installPythonTools()];
for (const { missing } of [node, python]) {
  if (missing !== undefined) console.warn(`a generated client is SKIPPED: ${missing}`);
}

/** The block of code of a README in this language. */
function exampleOf(readme: string, language: string): string {
  const text = readFileSync(join(PACKAGE_ROOT, 'clients', readme), 'utf8');
  return text.split(`\`\`\`${language}\n`)[1]!.split('```')[0]!;
}

const LINES = (number: string) =>
  [
    'sandbox running',
    `usage ${number}`,
    expect.stringMatching(/^events true$/i),
    'preview 8000',
    'pool warm',
    'snapshots 0',
    expect.stringMatching(/^refusal 404 \w+ true$/i),
  ] as string[];

test('the packages have the version of the service', () => {
  const { version } = JSON.parse(readFileSync(join(CLIENTS, 'typescript/package.json'), 'utf8'));
  expect(version).toBe(VERSION);
});

describe('a generated client', () => {
  let service: TestService;
  let client: Client;
  let directory: string;
  beforeAll(async () => {
    service = await startTestService();
    directory = mkdtempSync(join(tmpdir(), 'sandkeep-clients-'));
  });
  afterAll(async () => {
    await service?.close();
    rmSync(directory, { recursive: true, force: true });
  });

  async function run(program: string, args: string[], more: object = {}): Promise<string[]> {
    client = await service.newOrg();
    const env = { ...process.env, SANDKEEP_URL: service.url, SANDKEEP_API_KEY: client.key, ...more };
    const { stdout } = await execute(program, args, { env });
    return stdout.trim().split('\n');
  }

  test.skipIf(node.missing !== undefined && !isRequired)(
    'in TypeScript sends requests, checks their types, and follows pages',
    async () => {
      if (node.missing !== undefined) throw new Error(node.missing);
      const folder = await buildTypeScriptClient(directory, node.modules);
      cpSync(join(CLIENTS, 'typescript/examples/beyond.ts'), join(folder, 'program.mts'));
      await compileProgram(folder, 'program.mts', node.modules);
      expect(await run(process.execPath, [join(folder, 'program.mjs')])).toEqual(LINES('number'));

      const example = exampleOf('typescript/README.md', 'ts').replace('http://127.0.0.1:8080', service.url);
      const globals = 'declare const process: any, console: any;\n';
      writeFileSync(join(folder, 'example.mts'), globals + example);
      await compileProgram(folder, 'example.mts', node.modules);
      const lines = await run(process.execPath, [join(folder, 'example.mjs')]);
      expect(lines.at(-1)).toMatch(/^404 \w+ .* [\w-]+$/);
    },
  );

  test.skipIf(node.missing !== undefined && !isRequired)('has a description without faults', async () => {
    if (node.missing !== undefined) throw new Error(node.missing);
    expect(await lintDescription(node.modules)).toEqual([]);
  });

  test.skipIf(python.missing !== undefined && !isRequired)(
    'in Python sends requests, and follows pages',
    async () => {
      if (python.missing !== undefined) throw new Error(python.missing);
      const path = { PYTHONPATH: await buildPythonClient(directory, python.python) };
      expect(await run(python.python, [join(CLIENTS, 'python/examples/beyond.py')], path)).toEqual(
        LINES('int'),
      );

      const example = exampleOf('python/README.md', 'python').replace('http://127.0.0.1:8080', service.url);
      writeFileSync(join(directory, 'example.py'), example);
      const lines = await run(python.python, [join(directory, 'example.py')], path);
      expect(lines.at(-1)).toMatch(/^404 \w+ .* [\w-]+$/);
    },
  );
});
