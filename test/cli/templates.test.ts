import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createGunzip } from 'node:zlib';
import { extract, type Headers } from 'tar-stream';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { packContext } from '../../src/cli/template-context.js';
import { expectRefused, run, runJson } from '../support/cli.js';
import { startTestService, type TestService } from '../support/service.js';

let service: TestService;
let env: Record<string, string>;
let folder: string;
beforeAll(async () => {
  service = await startTestService();
  const client = await service.newOrg();
  env = { SANDKEEP_URL: `${service.url}/`, SANDKEEP_API_KEY: client.key };
  folder = mkdtempSync(join(tmpdir(), 'sandkeep-templates-'));
  writeFileSync(join(folder, 'Dockerfile'), 'ARG TAG=1\nFROM busybox:$TAG\nENV A=1\n');
});
afterAll(async () => {
  await service.close();
  rmSync(folder, { recursive: true, force: true });
});

const templates = (...args: string[]) => run(['templates', ...args], { env });

describe('sandkeep templates', () => {
  test('builds with its log, lists, shows, and deletes', async () => {
    const built = await templates(
      'build',
      folder,
      '-t',
      'agent:1',
      '--label',
      'team=ml',
      '--build-arg',
      'TAG=2',
    );
    expect([built.code, built.out]).toEqual([
      0,
      expect.stringMatching(
        /^FROM busybox:2\nthe template is built\nagent:1 is built: 1 MiB, [0-9a-f-]{36}\n$/,
      ),
    ]);
    const shown = await runJson(['templates', 'show', 'agent:1'], { env });
    expect(shown).toMatchObject({ name: 'agent', status: 'succeeded', labels: { team: 'ml' } });
    expect((await templates('list')).out).toMatch(/agent +1 +succeeded +0\/0 +1 MiB/);
    expect((await templates('log', shown.id)).out).toBe('FROM busybox:2\nthe template is built\n');
    expect((await templates('delete', 'agent:1')).out).toBe('the template "agent:1" is deleted\n');
    expect((await templates('list')).out).toBe('no templates\n');
  });

  test('builds the stage of --target', async () => {
    const staged = join(folder, 'staged');
    mkdirSync(staged);
    writeFileSync(
      join(staged, 'Dockerfile'),
      'FROM busybox:1 AS one\nENV A=1\nFROM busybox:2\nFROM one AS three\n',
    );
    const args = ['build', staged, '-t', 'staged:1', '--target'];
    const one = await templates(...args, 'one');
    expect([one.code, one.out]).toEqual([
      0,
      expect.stringMatching(/^FROM busybox:1\nthe template is built\n/),
    ]);
    expect((await templates(...args, '2')).out).toMatch(/^FROM busybox:1\nFROM one\nthe template is built\n/);
    expectRefused(await templates(...args, 'four'), 'its stages are one, 1, three');
    expect((await templates('build', '--help')).out).toContain('--target <stage>');
  });

  test('fails with the reason', async () => {
    const other = join(folder, 'other');
    mkdirSync(other);
    writeFileSync(join(other, 'File'), 'FROM busybox\nRUN true\n');
    expectRefused(await templates('build', other, '-t', 'a:1'), 'there is no "Dockerfile"');
    expectRefused(await templates('build', join(folder, 'none'), '-t', 'a:1'), 'is no directory');
    expectRefused(await templates('build', other, '-f', 'File', '-t', 'a:1:2'), 'such as agent:1');
    const failed = await templates('build', other, '-f', 'File', '-t', 'a:1');
    expect([failed.code, failed.err]).toEqual([
      1,
      expect.stringContaining('the build has failed: the simulated runtime runs no processes'),
    ]);
    const detached = await runJson(['templates', 'build', other, '-f', 'File', '-t', 'a:2', '--detach'], {
      env,
    });
    expect(detached.tag).toBe('2');
    writeFileSync(join(other, 'File'), 'FROM busybox\nVOLUME /x\n');
    expectRefused(await templates('build', other, '-f', 'File', '-t', 'a:1'), 'line 2 of the Dockerfile');
    expectRefused(await templates('show', 'none:1'), 'there is no template "none:1"');
  });
});

test('the context has what .dockerignore leaves in it', async () => {
  const context = mkdtempSync(join(folder, 'context-'));
  for (const path of [
    'node_modules/a',
    'src/keep.txt',
    'src/drop.log',
    'deep/one/two.log',
    'secret/key',
    'secret/public',
  ]) {
    mkdirSync(join(context, path, '..'), { recursive: true });
    writeFileSync(join(context, path), path);
  }
  symlinkSync('src/keep.txt', join(context, 'link'));
  writeFileSync(join(context, 'Dockerfile'), 'FROM a');
  writeFileSync(
    join(context, '.dockerignore'),
    '# comment\nnode_modules\n**/*.log\nsecret/*\n!secret/public\nDockerfile\n',
  );
  const found: Record<string, string> = {};
  const archive = extract();
  archive.on('entry', ({ name, type, linkname }: Headers, content, next) => {
    const parts: Buffer[] = [];
    content.on('data', (part: Buffer) => parts.push(part));
    content.on('end', () => {
      found[name] = type === 'file' ? Buffer.concat(parts).toString() : (linkname ?? 'directory');
      next();
    });
  });
  await new Promise<void>((resolve, reject) => {
    archive.on('finish', resolve).on('error', reject);
    packContext(context, 'Dockerfile').pipe(createGunzip()).pipe(archive);
  });
  expect(found).toEqual({
    '.dockerignore': expect.stringContaining('node_modules') as string,
    Dockerfile: 'FROM a',
    deep: 'directory',
    'deep/one': 'directory',
    link: 'src/keep.txt',
    secret: 'directory',
    'secret/public': 'secret/public',
    src: 'directory',
    'src/keep.txt': 'src/keep.txt',
  });
});
