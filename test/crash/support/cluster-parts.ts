import { execFileSync, spawn } from 'node:child_process';
import { closeSync, existsSync, openSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { kill, until } from '../../support/processes.js';

/**
 * The processes of a cluster on this machine. `pids/` in its directory has the process id of `etcd`, `apiserver`, and
 * of `kubeletN` and `dockerdN` of each node. A node has the network namespace and the link `skkN`, and
 * `nodeN/docker.sock`.
 */
export class ClusterParts {
  /** The command lines of killed processes. */
  private readonly killed = new Map<string, string[]>();

  constructor(private readonly directory: string) {}

  get nodes(): number[] {
    return readdirSync(join(this.directory, 'pids'))
      .flatMap((name) => /^kubelet(\d+)$/.exec(name)?.[1] ?? [])
      .map(Number)
      .toSorted((a, b) => a - b);
  }

  socketOf(node: number): string {
    return join(this.directory, `node${node}`, 'docker.sock');
  }

  async kill(part: string): Promise<void> {
    const pid = this.pidOf(part);
    const line = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').slice(0, -1);
    this.killed.set(part, line);
    kill('SIGKILL', pid);
    await until(`${part} is gone`, () => !existsSync(`/proc/${pid}`) || stateOf(pid) === 'Z');
  }

  /** Restarts a process with further arguments. Returns a function that restarts it without them. */
  async restartWith(part: string, ...more: string[]): Promise<() => Promise<void>> {
    await this.kill(part);
    const line = this.killed.get(part)!;
    this.start(part, more);
    return async () => {
      await this.kill(part);
      this.killed.set(part, line);
      this.start(part);
    };
  }

  /** Starts a killed process with the same command line. It outlives the test. */
  start(part: string, more: string[] = []): void {
    const line = this.killed.get(part);
    if (!line) return;
    this.killed.delete(part);
    const node = /^(?:kubelet|dockerd)(\d+)$/.exec(part)?.[1];
    const inside = node === undefined ? [] : ['nsenter', `--net=/var/run/netns/skk${node}`];
    const [program, ...rest] = [...inside, ...line, ...more];
    const log = openSync(join(this.directory, 'logs', `${part}.log`), 'a');
    const child = spawn(program!, rest, { detached: true, stdio: ['ignore', log, log], cwd: '/' });
    closeSync(log);
    child.unref();
    writeFileSync(join(this.directory, 'pids', part), `${child.pid}\n`);
  }

  /** Nothing reaches the node, and nothing leaves it. */
  cutOff(node: number): void {
    execFileSync('ip', ['link', 'set', `skk${node}`, 'down']);
  }

  /** Kills the kubelet, the engine and every container of a node. */
  async destroyNode(node: number): Promise<void> {
    await this.kill(`kubelet${node}`);
    const containers = this.processesOf(node, 'containerd-shim').flatMap(descendantsOf);
    await this.kill(`dockerd${node}`);
    kill('SIGKILL', ...containers, ...this.processesOf(node, 'containerd'));
  }

  /** Makes everything as it was before. */
  restore(): void {
    for (const node of this.nodes) execFileSync('ip', ['link', 'set', `skk${node}`, 'up']);
    // The pid files of killed engines may name other processes by now.
    for (const node of this.nodes.filter((each) => this.killed.has(`dockerd${each}`))) {
      const folder = join(this.directory, `node${node}`);
      execFileSync('rm', ['-f', join(folder, 'dockerd.pid'), join(folder, 'exec/containerd/containerd.pid')]);
    }
    const order = ['etcd', 'apiserver', 'dockerd', 'kubelet'];
    const rank = (part: string) => order.findIndex((name) => part.startsWith(name));
    for (const part of [...this.killed.keys()].toSorted((a, b) => rank(a) - rank(b))) this.start(part);
  }

  private pidOf(part: string): number {
    return Number(readFileSync(join(this.directory, 'pids', part), 'utf8'));
  }

  private processesOf(node: number, program: string): number[] {
    const folder = join(this.directory, `node${node}/`);
    return readdirSync('/proc')
      .filter((name) => /^\d+$/.test(name))
      .filter((pid) => {
        try {
          const [first = '', ...others] = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
          return first.includes(program) && others.some((text) => text.includes(folder));
        } catch {
          return false;
        }
      })
      .map(Number);
  }
}

/** The process and all below it. */
function descendantsOf(pid: number): number[] {
  try {
    const text = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8');
    return [pid, ...text.split(' ').filter(Boolean).map(Number).flatMap(descendantsOf)];
  } catch {
    return [];
  }
}

function stateOf(pid: number): string | undefined {
  try {
    return /\) (\w)/.exec(readFileSync(`/proc/${pid}/stat`, 'utf8'))?.[1];
  } catch {
    return undefined;
  }
}
