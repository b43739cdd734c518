import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { TOOLS } from '../../src/mcp/tools/all.js';
import type { Client } from '../support/client.js';
import { installInspector } from '../support/clients-install.js';
import { startTestService, type TestService } from '../support/service.js';

const { program, missing } = await installInspector();
const isSkipped = missing !== undefined && process.env['SANDKEEP_TEST_CLIENTS'] !== 'required';
if (missing !== undefined) console.warn(`the test with the MCP inspector is SKIPPED: ${missing}`);

/** The arguments of each tool, on a simulated sandbox. The inspector reads words such as `true` as JSON. */
const CALLS: Record<string, { args: string[]; shows: string }> = {
  create_sandbox: { args: ['image=busybox', 'name=other'], shows: '"status": "running"' },
  list_sandboxes: { args: ['limit=5'], shows: '"name": "box"' },
  get_sandbox: { args: ['sandbox=box'], shows: '"name": "box"' },
  start_sandbox: { args: ['sandbox=kept'], shows: 'invalid_state_transition' },
  stop_sandbox: { args: ['sandbox=kept'], shows: '"status": "stopped"' },
  delete_sandbox: { args: ['sandbox=unused'], shows: '"message"' },
  run_command: { args: ['sandbox=box', 'command=ls -l'], shows: 'not_supported' },
  run_code: { args: ['sandbox=box', 'language=sh', 'code=ls -l'], shows: 'not_supported' },
  read_file: { args: ['sandbox=box', 'path=/a'], shows: 'not_supported' },
  write_file: { args: ['sandbox=box', 'path=/a', 'content=text'], shows: 'not_supported' },
  list_files: { args: ['sandbox=box', 'path=/'], shows: 'not_supported' },
  open_preview: { args: ['sandbox=box', 'port=8000'], shows: '#sandkeep-grant=' },
  list_previews: { args: ['sandbox=box'], shows: '"previews"' },
  close_preview: {
    args: ['sandbox=box', 'preview=01a0a8a1-5b6e-7d21-9c1b-6a1f0e4c2d55'],
    shows: 'preview_not_found',
  },
  create_snapshot: { args: ['sandbox=box', 'name=prepared'], shows: '"source_sandbox": "box"' },
  list_snapshots: { args: [], shows: '"name": "prepared"' },
  start_from_snapshot: { args: ['snapshot=prepared', 'name=copied'], shows: '"status": "running"' },
  delete_snapshot: { args: ['snapshot=prepared'], shows: '"message"' },
  fork_sandbox: { args: ['sandbox=box', 'count=1'], shows: '"name": "box-1"' },
  get_fork: { args: ['fork=01a0a8a1-5b6e-7d21-9c1b-6a1f0e4c2d55'], shows: 'fork_operation_not_found' },
  build_template: {
    args: ['tag=tools:1', 'from=template:none:1', 'commands=["true"]'],
    shows: 'template_not_found',
  },
  list_templates: { args: [], shows: '"templates"' },
  get_template: { args: ['template=none'], shows: 'template_not_found' },
  read_template_log: { args: ['template=none'], shows: 'template_not_found' },
  start_from_template: { args: ['template=none'], shows: 'template_not_found' },
  delete_template: { args: ['template=none'], shows: 'template_not_found' },
  read_logs: { args: ['sandbox=box'], shows: 'the log is empty' },
  get_usage: { args: ['month=2026-01'], shows: '"total_cents"' },
};

describe.skipIf(isSkipped)(
  `the command line of the MCP inspector${isSkipped ? ` — SKIPPED: ${missing}` : ''}`,
  () => {
    let service: TestService;
    let client: Client;
    let home: string;
    beforeAll(async () => {
      if (missing !== undefined) throw new Error(missing);
      service = await startTestService();
      client = await service.newOrg();
      home = mkdtempSync(join(tmpdir(), 'sandkeep-inspector-'));
      for (const name of ['box', 'kept', 'unused']) {
        const body = { name, image: { type: 'oci', reference: 'busybox' } };
        await client.post('/v1/sandboxes', body, { start: true, wait_for: 'running' });
      }
    });
    afterAll(async () => {
      await service?.close();
      rmSync(home, { recursive: true, force: true });
    });

    /** Its output. It exits with a code of its own when a tool reports a failure. */
    function inspect(target: string[], ...args: string[]): Promise<string> {
      const env = { PATH: process.env['PATH'], HOME: home };
      return new Promise((resolve) => {
        execFile(process.execPath, [program!, '--cli', ...target, ...args], { env }, (_, stdout, stderr) =>
          resolve(stdout === '' ? stderr : stdout),
        );
      });
    }
    const byHttp = (...args: string[]) =>
      inspect(
        [`${service.url}/mcp`, '--transport', 'http', '--header', `Authorization: Bearer ${client.key}`],
        ...args,
      );
    const byStdio = (...args: string[]) =>
      inspect(
        [
          '-e',
          `SANDKEEP_URL=${service.url}`,
          '-e',
          `SANDKEEP_API_KEY=${client.key}`,
          process.execPath,
          join(PACKAGE_ROOT, 'bin', 'sandkeep'),
          'mcp',
        ],
        ...args,
      );
    const callArgs = (tool: string) => [
      '--method',
      'tools/call',
      '--tool-name',
      tool,
      ...CALLS[tool]!.args.flatMap((arg) => ['--tool-arg', arg]),
    ];

    test.each([
      ['streamable HTTP', byHttp],
      ['standard input and output', byStdio],
    ])('lists the tools and resources over %s', async (_, by) => {
      const { tools } = JSON.parse(await by('--method', 'tools/list')) as { tools: { name: string }[] };
      expect(tools.map(({ name }) => name)).toEqual(TOOLS.map(({ name }) => name));
      const { resources } = JSON.parse(await by('--method', 'resources/list')) as {
        resources: { uri: string; name: string }[];
      };
      const { uri } = resources.find(({ name }) => name === 'box/logs')!;
      expect(JSON.parse(await by('--method', 'resources/read', '--uri', uri))).toMatchObject({
        contents: [{ uri, text: '' }],
      });
      expect(await by(...callArgs('get_sandbox'))).toContain(CALLS['get_sandbox']!.shows);
    });

    test.each(TOOLS.map(({ name }) => name))('calls %s', async (tool) => {
      expect(await byHttp(...callArgs(tool))).toContain(CALLS[tool]!.shows);
    });

    test('asks for another key when one is refused', async () => {
      const url = [
        `${service.url}/mcp`,
        '--transport',
        'http',
        '--header',
        'Authorization: Bearer skp_wrong',
      ];
      expect(await inspect(url, '--method', 'tools/list')).toContain('auth_required');
    });
  },
);
