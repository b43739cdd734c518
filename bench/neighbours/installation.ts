import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { serveOnDocker } from '../docker-service.js';
import { serveOnMicrovm, type MicrovmOptions } from '../microvm-service.js';
import { PROGRAM, startService, type Server } from '../speed/processes.js';

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

/** Undefined: the simulated runtime. */
type Engine = { dockerSocket: string } | MicrovmOptions | undefined;

/** A service with its defaults and two organizations. */
export async function openInstallation(engine: Engine): Promise<Installation> {
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-bench-'));
  const options = [
    // No start waits for the end of another sandbox.
    '--capacity-vcpus',
    '64',
    // The receivers of the attack by webhooks are on this machine.
    '--webhook-allow',
    '127.0.0.0/8',
    '--webhook-http',
  ];
  const server = await serveOn(engine, directory, options);
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
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

async function serveOn(engine: Engine, directory: string, options: readonly string[]): Promise<Server> {
  if (engine && 'dockerSocket' in engine) {
    return serveOnDocker(engine.dockerSocket, directory, ['--docker-network', 'none', ...options]);
  }
  const withPreviews = ['--preview-port', '0', ...options];
  if (engine) return serveOnMicrovm(directory, engine, withPreviews);
  const simulated = ['--runtime', 'simulated', '--simulated-start-ms', '50', '--data-dir', directory];
  return startService([...simulated, ...withPreviews]);
}
