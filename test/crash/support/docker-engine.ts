import Docker from 'dockerode';
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdirSync, mkdtempSync, openSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { kill, until } from '../../support/processes.js';

const READY_WITHIN_MS = 60_000;

/** A Docker engine of the test's own, which can be killed. */
export interface OwnEngine {
  socket: string;
  docker: Docker;
  start(): Promise<void>;
  /** SIGKILL to the engine and to what runs containers for it; the containers' processes live on. */
  kill(): Promise<void>;
  /** Ends everything of it. */
  close(): Promise<void>;
}

export async function openOwnEngine(): Promise<OwnEngine> {
  const folder = mkdtempSync(join(tmpdir(), 'sandkeep-engine-'));
  const socket = join(folder, 'docker.sock');
  const docker = new Docker({ socketPath: socket });
  let daemon: ChildProcess | undefined;

  async function start(): Promise<void> {
    // Left by one that was killed, they may name another process by now, for which a new engine would give way.
    for (const name of ['docker.pid', 'exec/containerd/containerd.pid']) {
      rmSync(join(folder, name), { force: true });
    }
    const places = [
      `--data-root=${folder}/data`,
      `--exec-root=${folder}/exec`,
      `--pidfile=${folder}/docker.pid`,
    ];
    // No network, and a namespace of its own: it would take the bridge of another engine away as left over.
    const apart = ['--host', `unix://${socket}`, '--bridge=none', '--iptables=false', '--ip6tables=false'];
    const log = openSync(join(folder, 'log'), 'a');
    daemon = spawn('unshare', ['--net', 'dockerd', ...places, ...apart], { stdio: ['ignore', log, log] });
    closeSync(log);
    await until(
      () => `the engine answers:\n${readFileSync(join(folder, 'log'), 'utf8').slice(-2_000)}`,
      async () => (await docker.ping().catch(() => undefined)) !== undefined,
      READY_WITHIN_MS,
      50,
    );
  }

  async function killEngine(): Promise<void> {
    const ended = once(daemon!, 'exit');
    kill('SIGKILL', daemon!.pid!, ...processesOf(folder, 'containerd'));
    await ended;
  }

  mkdirSync(join(folder, 'exec'));
  await start();
  return {
    socket,
    docker,
    start,
    kill: killEngine,
    async close() {
      for (const { Id } of await docker.listContainers({ all: true })) {
        await docker.getContainer(Id).remove({ force: true });
      }
      const ended = once(daemon!, 'exit');
      daemon!.kill('SIGTERM');
      await ended;
      await until('nothing of the engine runs', () => {
        const left = processesOf(folder);
        kill('SIGKILL', ...left);
        return left.length === 0;
      });
      unmountBelow(folder);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** What an engine has mounted stays when it is killed. */
function unmountBelow(folder: string): void {
  const mounted = readFileSync('/proc/self/mounts', 'utf8')
    .split('\n')
    .map((line) => line.split(' ')[1] ?? '')
    .filter((path) => path.startsWith(`${folder}/`));
  if (mounted.length > 0) execFileSync('umount', ['--lazy', ...mounted.toReversed()]);
}

/** Of those that name the folder on their command line; all or those of a program. */
function processesOf(folder: string, program?: string): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .filter((pid) => {
      try {
        const named = program === undefined || readFileSync(`/proc/${pid}/comm`, 'utf8') === `${program}\n`;
        return named && readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(folder);
      } catch {
        return false;
      }
    })
    .map(Number);
}
