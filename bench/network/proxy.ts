import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Internet } from '../../test/support/internet/internet.js';
import { networkOf } from '../../test/support/netns.js';

/** Another program that carries the traffic, for comparison. */
export interface Proxy {
  version: string;
  host: string;
  port: number;
  pid: number;
  stop(): Promise<void>;
}

const START_MS = 20_000;

interface Program {
  version: string;
  /** The words of its start. It stays in the foreground. */
  command: readonly string[];
  host: string;
  port: number;
}

/** Starts a program in the network of the servers, and answers when it listens. */
export async function startProxy(internet: Internet, program: Program): Promise<Proxy> {
  const { command, version, host, port } = program;
  const child = spawn('nsenter', [networkOf(internet.namespace), ...command], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const ended = once(child, 'exit');
  await untilListening(host, port);
  return {
    version,
    host,
    port,
    pid: child.pid!,
    async stop() {
      child.kill('SIGTERM');
      await ended;
    },
  };
}

async function untilListening(host: string, port: number): Promise<void> {
  const end = Date.now() + START_MS;
  for (;;) {
    const socket = connect({ host, port });
    const outcome = await Promise.race([
      once(socket, 'connect').then(() => true),
      once(socket, 'error').then(() => false),
    ]).catch(() => false);
    socket.destroy();
    if (outcome) return;
    if (Date.now() > end) {
      throw new Error(`the proxy does not listen on ${host}:${port} after ${START_MS / 1_000} s`);
    }
    await sleep(200);
  }
}
