import Docker from 'dockerode';
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdirSync, mkdtempSync, openSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { kill, until } from '../../support/processes.js';

const READY_WITHIN_MS = 300_000;

/** A Docker engine for one test, which the test can kill. */
export interface OwnEngine {
  socket: string;
  docker: Docker;
  start(): Promise<void>;
  /** Sends SIGKILL to the engine and to containerd. The processes of the containers survive. */
  kill(): Promise<void>;
  /** Ends the engine and all its containers. */
  close(): Promise<void>;
}

export async function openOwnEngine(): Promise<OwnEngine> {
  const folder = mkdtempSync(join(tmpdir(), 'sandkeep-engine-'));
  const socket = join(folder, 'docker.sock');
  const docker = new Docker({ socketPath: socket });
  let daemon: ChildProcess | undefined;

  async function start(): Promise<void> {
    // The pid files of a killed engine may name other processes by now, and a new engine would refuse to start.
    for (const name of ['docker.pid', 'exec/containerd/containerd.pid']) {
      rmSync(join(folder, name), { force: true });
    }
    const places = [
      `--data-root=${folder}/data`,
      `--exec-root=${folder}/exec`,
      `--pidfile=${folder}/docker.pid`,
    ];
    // No network, and a namespace of its own: it would remove the bridge of another engine as stale.
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

/** The mounts of a killed engine remain. */
function unmountBelow(folder: string): void {
  const mounted = readFileSync('/proc/self/mounts', 'utf8')
    .split('\n')
    .map((line) => line.split(' ')[1] ?? '')
    .filter((path) => path.startsWith(`${folder}/`));
  if (mounted.length > 0) execFileSync('umount', ['--lazy', ...mounted.toReversed()]);
}

/** The processes with the folder on their command line; all or those of one program. */
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
