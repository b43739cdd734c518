import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { PROGRAM, startService, type Server } from './speed/processes.js';

/** Starts the service on a Docker engine, on free ports. Its stop removes everything from the engine again. */
export async function serveOnDocker(
  dockerSocket: string,
  directory: string,
  options: readonly string[] = [],
): Promise<Server> {
  const place = ['--docker-socket', dockerSocket, '--data-dir', directory];
  const server = await startService(['--runtime', 'docker', '--preview-port', '0', ...place, ...options]);
  return {
    ...server,
    async stop() {
      await server.stop();
      // Containers outlive the service. The socket of the engine may be one of this process.
      await promisify(execFile)(process.execPath, [PROGRAM, 'uninstall', '--yes', ...place]);
    },
  };
}
