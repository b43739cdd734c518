import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { checkOutput, WORD, type Side } from './side.js';

const run = promisify(execFile);

/** The command line of an engine. A call returns the output. */
export function dockerCli(socket: string): (...args: string[]) => Promise<string> {
  return async (...args) => (await run('docker', ['-H', `unix://${socket}`, ...args])).stdout;
}

/** The engine's own command line: `docker run -d` and `docker exec`. */
export function dockerSide(socket: string, image: string): Side {
  const docker = dockerCli(socket);
  return {
    name: 'docker run and exec',
    async start(name) {
      // With a process 1 that ends on SIGTERM, as sandboxes have one.
      const limits = ['--init', '--memory', '64m', '--cpus', '1'];
      await docker('run', '-d', '--name', name, '--pull', 'never', ...limits, image, 'sleep', '600');
      return {
        exec: async () => checkOutput(await docker('exec', name, 'echo', WORD)),
        stop: async () => void (await docker('stop', name)),
        again: async () => void (await docker('start', name)),
        remove: async () => void (await docker('rm', '-f', name)),
      };
    },
    close: async () => undefined,
  };
}
