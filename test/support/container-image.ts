import { execFileSync, spawnSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { describe } from 'vitest';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { hasDocker, SOCKET } from './docker.js';

/** Debian and Node 24 as on a public registry, made from packages, so that none is needed. */
export const BASE = 'sandkeep-test-base:bookworm';
export const NODE_BASE = 'sandkeep-test-base:node24';
const CERTIFICATES = '/etc/ssl/certs/ca-certificates.crt';

const reason = whyNot();

/** Tests of the container image. SANDKEEP_TEST_IMAGE=required makes a missing program a failure. */
export const describeImage =
  reason === undefined || process.env['SANDKEEP_TEST_IMAGE'] === 'required'
    ? describe
    : (name: string, body: () => void) => describe.skip(`${name} — SKIPPED: ${reason}`, body);

if (reason !== undefined) console.warn(`the tests of the container image are SKIPPED: ${reason}`);

function whyNot(): string | undefined {
  if (!hasDocker) return 'there is no Docker engine (on Debian: apt-get install docker.io)';
  for (const program of ['mmdebstrap', 'docker-compose']) {
    if (spawnSync(program, ['--version']).error)
      return `there is no ${program} (on Debian: apt-get install ${program})`;
  }
  return process.getuid?.() === 0 ? undefined : 'this user is not root, which makes the base image';
}

export function docker(...args: string[]): string {
  return execFileSync('docker', ['-H', `unix://${SOCKET}`, ...args], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
    maxBuffer: 64 * 1024 ** 2,
  }).trim();
}

/** Builds `tag` from the Dockerfile of the repository. */
export function buildImage(tag: string): void {
  makeBases();
  const bases = ['--build-arg', `NODE_IMAGE=${NODE_BASE}`, '--build-arg', `BASE_IMAGE=${BASE}`];
  docker('build', '--quiet', '--network', 'host', ...bases, '--tag', tag, PACKAGE_ROOT);
}

/** Builds `tag` from the text of a Dockerfile, and the files of a folder. Default: none. */
export function buildFrom(tag: string, dockerfile: string, files?: string): void {
  const folder = mkdtempSync(join(tmpdir(), 'sandkeep-build-'));
  try {
    if (files !== undefined) cpSync(files, folder, { recursive: true });
    writeFileSync(join(folder, 'Dockerfile'), dockerfile);
    docker('build', '--quiet', '--network', 'host', '--tag', tag, folder);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Makes the images from which tests build others. */
export function makeBases(): void {
  const folder = mkdtempSync(join(tmpdir(), 'sandkeep-base-'));
  try {
    if (docker('image', 'ls', '--quiet', BASE) === '') makeDebian(join(folder, 'debian.tar'));
    makeNode(join(folder, 'node'));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function makeDebian(archive: string): void {
  const left = ['doc', 'locale', 'man'].map((name) => `--dpkgopt=path-exclude=/usr/share/${name}/*`);
  const packages = '--include=ca-certificates,libstdc++6';
  execFileSync('mmdebstrap', ['--variant=apt', packages, ...left, 'bookworm', archive], { stdio: 'pipe' });
  docker('import', archive, BASE);
}

/** The layers of an unchanged Node come from the cache of the engine. */
function makeNode(folder: string): void {
  const platform = `node-linux-${process.arch}`;
  const [local, cache] = [join(folder, 'files/usr/local'), join(PACKAGE_ROOT, 'node_modules/.cache/node24')];
  const node = join(cache, 'node_modules', platform, 'bin', 'node');
  if (!existsSync(node)) {
    const args = ['install', '--prefix', cache, '--no-audit', '--no-fund', '--no-save', `${platform}@24`];
    execFileSync('npm', args, { stdio: 'pipe' });
  }
  for (const name of ['bin', 'etc', 'lib/node_modules']) mkdirSync(join(local, name), { recursive: true });
  cpSync(node, join(local, 'bin/node'), { preserveTimestamps: true });
  cpSync(npmFolder(), join(local, 'lib/node_modules/npm'), { recursive: true, preserveTimestamps: true });
  symlinkSync('../lib/node_modules/npm/bin/npm-cli.js', join(local, 'bin/npm'));
  writeFileSync(join(local, 'etc/npmrc'), `registry=${npmConfig('registry')}\ncafile=${CERTIFICATES}\n`);
  const certificates = join(folder, `files${CERTIFICATES}`);
  mkdirSync(dirname(certificates), { recursive: true });
  writeFileSync(certificates, readFileSync(CERTIFICATES));
  writeFileSync(join(folder, 'Dockerfile'), `FROM ${BASE}\nCOPY files /\n`);
  docker('build', '--quiet', '--tag', NODE_BASE, folder);
}

function npmFolder(): string {
  return join(execFileSync('npm', ['root', '--global'], { encoding: 'utf8' }).trim(), 'npm');
}

function npmConfig(name: string): string {
  return execFileSync('npm', ['config', 'get', name], { encoding: 'utf8' }).trim();
}
