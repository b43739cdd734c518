import { execFileSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import type { Internet } from '../../test/support/internet/internet.js';
import { startProxy, type Proxy } from './proxy.js';

const CACHE = join(PACKAGE_ROOT, 'node_modules/.cache/mitmproxy');
const PORT = 8080;

/**
 * Starts mitmproxy with the work of a gateway: it verifies the certificate of the server and puts a value into a
 * header. Undefined, with a warning: PyPI does not answer.
 */
export async function startMitmproxy(internet: Internet, directory: string): Promise<Proxy | undefined> {
  const program = install();
  if (program === undefined) return undefined;
  const authority = join(directory, 'authority.pem');
  writeFileSync(authority, internet.authority.root);
  const host = internet.address(99);
  const options = [
    `confdir=${join(directory, 'mitmproxy')}`,
    `ssl_verify_upstream_trusted_ca=${authority}`,
    'modify_headers=/~q/authorization/Bearer value-of-the-bench',
    'stream_large_bodies=1m',
  ];
  const command = [program, '-q', '--listen-host', host, '-p', String(PORT)].concat(
    options.flatMap((option) => ['--set', option]),
  );
  const version = /Mitmproxy: (\S+)/.exec(execFileSync(program, ['--version'], { encoding: 'utf8' }))![1]!;
  return startProxy(internet, { version, command, host, port: PORT });
}

function install(): string | undefined {
  const program = join(CACHE, 'bin/mitmdump');
  if (existsSync(program)) return program;
  try {
    execFileSync('python3', ['-m', 'venv', CACHE], { stdio: 'pipe' });
    execFileSync(join(CACHE, 'bin/pip'), ['install', '--quiet', 'mitmproxy'], { stdio: 'pipe' });
    return program;
  } catch (error) {
    console.warn(`mitmproxy is SKIPPED, because it cannot be installed from PyPI: ${String(error)}`);
    return undefined;
  }
}
