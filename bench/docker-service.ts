import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { PACKAGE_ROOT } from '../src/lib/package-root.js';
import { startServer, type Server } from './speed/processes.js';

/** Starts the service on a Docker engine, on free ports. Its stop removes everything from the engine again. */
export async function serveOnDocker(
  dockerSocket: string,
  directory: string,
  options: readonly string[] = [],
): Promise<Server> {
  const program = join(PACKAGE_ROOT, 'bin', 'sandkeep');
  const place = ['--docker-socket', dockerSocket, '--data-dir', directory];
  const listeners = ['--port', '0', '--preview-port', '0'];
  const fixed = ['serve', '--json', '--log-level', 'error', '--runtime', 'docker'];
  const server = await startServer([program, ...fixed, ...listeners, ...place, ...options]);
  return {
    ...server,
    async stop() {
      await server.stop();
      // Containers outlive the service. The socket of the engine may be one of this process.
      await promisify(execFile)(process.execPath, [program, 'uninstall', '--yes', ...place]);
    },
  };
}
