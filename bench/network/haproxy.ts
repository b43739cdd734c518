import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Internet } from '../../test/support/internet/internet.js';
import { startProxy, type Proxy } from './proxy.js';

const PORT = 8443;

/**
 * Starts HAProxy, which passes TCP connections on without looking at them. The kernel moves the bytes between the two
 * sockets (`splice`), so it shows the most that a proxy reaches on this machine. Undefined, with a warning: it is not
 * installed.
 */
export async function startHaproxy(internet: Internet, directory: string): Promise<Proxy | undefined> {
  const version = readVersion();
  if (version === undefined) return undefined;
  const host = internet.address(98);
  const file = join(directory, 'haproxy.cfg');
  writeFileSync(file, configuration(host, internet.address(10)));
  // -db: in the foreground.
  return startProxy(internet, { version, command: ['haproxy', '-db', '-f', file], host, port: PORT });
}

function readVersion(): string | undefined {
  try {
    const text = execFileSync('haproxy', ['-v'], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
    return /version (\d+(?:\.\d+)*)/.exec(text)?.[1];
  } catch {
    console.warn('HAProxy is SKIPPED, because it is not installed: apt-get install haproxy');
    return undefined;
  }
}

function configuration(host: string, server: string): string {
  return `global
  maxconn 4096
  nbthread 1
defaults
  mode tcp
  option splice-auto
  timeout connect 5s
  timeout client 60s
  timeout server 60s
listen bench
  bind ${host}:${PORT}
  server origin ${server}:443
`;
}
