import { execFileSync, spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { describe } from 'vitest';

/** Network namespaces of the machine, with real interfaces, routes and processes in them. Needs root. */

const PEER = join(import.meta.dirname, 'netns-peer.mjs');

const reason = whyNot();

/** Skips the tests with the reason where namespaces are unavailable, or fails with SANDKEEP_TEST_DOCKER=required. */
export const describeNetns =
  reason === undefined || process.env['SANDKEEP_TEST_DOCKER'] === 'required'
    ? describe
    : (name: string, body: () => void) => describe.skip(`${name} — SKIPPED: ${reason}`, body);

function whyNot(): string | undefined {
  if (process.getuid?.() !== 0) return 'it needs root';
  for (const program of ['nft', 'ip', 'nsenter']) {
    if (spawnSync(program, ['-V']).error) {
      return `there is no ${program} (on Debian: apt-get install nftables iproute2 util-linux)`;
    }
  }
  return undefined;
}

/** Runs a shell script, in a namespace if one is named. Returns its output. */
export function sh(script: string, namespace?: string): string {
  const inside = namespace === undefined ? [] : ['ip', 'netns', 'exec', namespace];
  return execFileSync('env', [...inside, 'sh', '-euc', script], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
  });
}

/** Replaces the rules of a namespace. */
export function nft(namespace: string, rules: string): void {
  execFileSync('ip', ['netns', 'exec', namespace, 'nft', '-f', '-'], { input: rules, stdio: 'pipe' });
}

export interface Attempt {
  /** `group`: UDP to a broadcast or multicast address. The outcome lists the addresses that answer. */
  protocol: 'tcp' | 'udp' | 'group';
  /** The source address. Default: the one of the route. */
  from?: string;
  to: string;
  port: number;
  /** Milliseconds. */
  wait: number;
}

/** A process in a namespace that answers on `ports` and tries to reach others. */
/**
 * The option of nsenter for long programs. `ip netns exec` gives them a copy of the mounts too, which keeps a volume of
 * another test mounted, and its loop device attached, until they end.
 */
export const networkOf = (namespace: string) => `--net=/run/netns/${namespace}`;

export class NetnsPeer {
  private readonly waiting = new Map<number, (outcome: string) => void>();
  private last = 0;

  private constructor(private readonly child: ChildProcess) {}

  /** `named`: the address that its name server answers for every name. */
  static async start(namespace: string, ports: readonly number[], named = ''): Promise<NetnsPeer> {
    const child = spawn('nsenter', [networkOf(namespace), process.execPath, PEER, ...ports.map(String)], {
      stdio: ['pipe', 'pipe', 'inherit'],
      env: { ...process.env, NAMED_ADDRESS: named },
    });
    const peer = new NetnsPeer(child);
    const lines = createInterface(child.stdout);
    await once(lines, 'line');
    lines.on('line', (line) => {
      const { id, outcome } = JSON.parse(line);
      peer.waiting.get(id)?.(outcome);
      peer.waiting.delete(id);
    });
    child.once('exit', () => {
      for (const settle of peer.waiting.values()) settle('the peer has ended');
    });
    return peer;
  }

  async try(attempt: Attempt): Promise<string> {
    const id = (this.last += 1);
    return new Promise((resolve) => {
      this.waiting.set(id, resolve);
      if (this.child.exitCode !== null) resolve('the peer has ended');
      this.child.stdin!.write(`${JSON.stringify({ id, ...attempt })}\n`);
    });
  }

  async stop(): Promise<void> {
    this.child.stdin!.end();
    if (this.child.exitCode === null) await once(this.child, 'exit');
  }
}
