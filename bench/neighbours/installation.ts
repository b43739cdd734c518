import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { startServer, type Server } from '../speed/processes.js';

const PROGRAM = join(PACKAGE_ROOT, 'bin', 'sandkeep');
const run = promisify(execFile);

export interface Installation {
  server: Server;
  address: string;
  /** The measured organization has it. */
  key: string;
  /** The organization that does its worst has it. */
  attackerKey: string;
  close(): Promise<void>;
}

/** A service with its defaults and two organizations. `dockerSocket`: undefined for the simulated runtime. */
export async function openInstallation(dockerSocket: string | undefined): Promise<Installation> {
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-bench-'));
  const server = await startServer([
    PROGRAM,
    'serve',
    '--json',
    '--port',
    '0',
    '--preview-port',
    '0',
    '--log-level',
    'error',
    '--data-dir',
    directory,
    // No start waits for the end of another sandbox.
    '--capacity-vcpus',
    '64',
    // The receivers of the attack by webhooks are on this machine.
    '--webhook-allow',
    '127.0.0.0/8',
    '--webhook-http',
    ...(dockerSocket === undefined
      ? ['--runtime', 'simulated', '--simulated-start-ms', '50']
      : ['--runtime', 'docker', '--docker-socket', dockerSocket, '--docker-network', 'none']),
  ]);
  const cli = async (...args: string[]) => {
    const { stdout } = await run(process.execPath, [PROGRAM, ...args, '--data-dir', directory, '--json']);
    return JSON.parse(stdout) as { key: string };
  };
  await cli('org', 'create', '--name', 'Attacker', '--slug', 'attacker');
  const { key: attackerKey } = await cli('key', 'create', '--org', 'attacker', '--name', 'attack');
  return {
    server,
    attackerKey,
    key: server.key!,
    address: `http://${server.host}:${server.port}`,
    async close() {
      await server.stop();
      // Containers outlive the service.
      if (dockerSocket !== undefined) await cli('uninstall', '--yes', '--docker-socket', dockerSocket);
      rmSync(directory, { recursive: true, force: true });
    },
  };
}
