import { execFileSync } from 'node:child_process';
import { hash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { buildFrom, docker, makeBases, NODE_BASE } from './container-image.js';

/** Development servers of Vite with React, a gRPC server, and a git repository, on Debian with Node 24. */
export const PROGRAMS_IMAGE = 'sandkeep-test:programs';
const PACKAGES = [
  'vite@8.3.8',
  '@vitejs/plugin-react@6.3.0',
  'react@19.3.1',
  'react-dom@19.3.1',
  '@grpc/grpc-js@1.14.7',
];
const CACHE = join(PACKAGE_ROOT, 'node_modules/.cache', `programs-${PACKAGES.length}-8.3.8`);

/** Throws where npm cannot install the packages. */
export function makePrograms(): void {
  makeBases();
  const folder = mkdtempSync(join(tmpdir(), 'sandkeep-programs-'));
  try {
    if (!existsSync(join(CACHE, 'node_modules/vite'))) {
      mkdirSync(CACHE, { recursive: true });
      const flags = ['--ignore-scripts', '--no-save', '--no-audit', '--no-fund', '--fetch-retries=1'];
      execFileSync('npm', ['install', '--prefix', CACHE, ...flags, ...PACKAGES], {
        cwd: CACHE,
        stdio: 'pipe',
      });
    }
    cpSync(join(CACHE, 'node_modules'), join(folder, 'node_modules'), { recursive: true });
    const app = join(folder, 'app');
    cpSync(join(PACKAGE_ROOT, 'test/support/programs'), app, { recursive: true });
    makeRepository(folder, join(app, 'git/repository.git'));
    // The engine keeps the layer of the packages.
    const layers = ['COPY node_modules /app/node_modules', 'COPY app /app'];
    buildFrom(PROGRAMS_IMAGE, [`FROM ${NODE_BASE}`, ...layers, ''].join('\n'), folder);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const JUPYTER = 'jupyterlab==4.6.6';

/** JupyterLab, and git with its server of HTTP, on Debian. Throws where pip or apt-get cannot install the packages. */
export function makeJupyter(): string {
  const gitServer = readFileSync(join(PACKAGE_ROOT, 'test/support/programs/git-http.mjs'));
  const tag = `sandkeep-test:jupyter-${hash('sha256', `${JUPYTER} ${gitServer.toString()}`).slice(0, 12)}`;
  if (docker('image', 'ls', '--quiet', tag) !== '') return tag;
  makeBases();
  const cache = join(PACKAGE_ROOT, 'node_modules/.cache', JUPYTER);
  if (!existsSync(join(cache, 'jupyterlab'))) {
    const flags = ['--quiet', '--disable-pip-version-check', '--target', cache];
    execFileSync('python3', ['-m', 'pip', 'install', ...flags, JUPYTER], { stdio: 'pipe' });
  }
  const folder = mkdtempSync(join(tmpdir(), 'sandkeep-jupyter-'));
  try {
    cpSync(cache, join(folder, 'python'), { recursive: true });
    writeFileSync(join(folder, 'git-http.mjs'), gitServer);
    const lines = [
      `FROM ${NODE_BASE}`,
      'RUN apt-get update && apt-get install --yes --no-install-recommends python3 git',
      'COPY python /opt/python',
      'COPY git-http.mjs /app/',
      'ENV PYTHONPATH=/opt/python JUPYTER_PATH=/opt/python/share/jupyter',
      '',
    ];
    buildFrom(tag, lines.join('\n'), folder);
    return tag;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** A bare repository with one commit, as files for a plain web server. */
function makeRepository(folder: string, bare: string): void {
  const work = join(folder, 'work');
  const git = (...args: string[]) => {
    const identity = ['-c', 'user.name=Test', '-c', 'user.email=test@example.com'];
    execFileSync('git', [...identity, ...args], { cwd: work, stdio: 'pipe' });
  };
  mkdirSync(work, { recursive: true });
  git('init', '--quiet', '--initial-branch=main');
  writeFileSync(join(work, 'README'), 'a repository in a sandbox\n');
  git('add', '.');
  git('commit', '--quiet', '--message=first');
  git('clone', '--quiet', '--bare', work, bare);
  execFileSync('git', ['update-server-info'], { cwd: bare, stdio: 'pipe' });
  rmSync(work, { recursive: true });
}
