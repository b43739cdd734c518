import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { checkOutput, WORD, type Side } from './side.js';

const run = promisify(execFile);

/** The container runtime alone: no engine, no network, no disk of its own. It is the floor. */
export async function runcSide(directory: string, socket: string, image: string): Promise<Side> {
  const bundle = join(directory, 'bundle');
  const root = join(directory, 'runc');
  const rootfs = join(bundle, 'rootfs');
  mkdirSync(rootfs, { recursive: true });
  const docker = async (...args: string[]) =>
    (await run('docker', ['-H', `unix://${socket}`, ...args])).stdout;
  const id = (await docker('create', image, 'sleep', '1')).trim();
  await run('sh', ['-c', `docker -H unix://${socket} export ${id} | tar -x -C ${rootfs}`]);
  await docker('rm', id);
  await run('runc', ['spec'], { cwd: bundle });
  const file = join(bundle, 'config.json');
  const config = JSON.parse(readFileSync(file, 'utf8'));
  config.process.terminal = false;
  config.process.args = ['sleep', '600'];
  writeFileSync(file, JSON.stringify(config));
  const runc = async (...args: string[]) => (await run('runc', ['--root', root, ...args])).stdout;
  return {
    name: 'runc alone',
    async start(name) {
      // With pipes, the container would keep them open.
      const child = spawn('runc', ['--root', root, 'run', '-d', '--bundle', bundle, name], {
        stdio: 'ignore',
      });
      const [code] = (await once(child, 'exit')) as [number];
      if (code !== 0) throw new Error(`runc run ended with ${code}`);
      return {
        exec: async () => checkOutput(await runc('exec', name, 'echo', WORD)),
        remove: async () => void (await runc('delete', '--force', name)),
      };
    },
    close: async () => undefined,
  };
}
