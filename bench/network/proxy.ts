import { once } from 'node:events';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/** Another program that carries the traffic, for comparison. */
export interface Proxy {
  version: string;
  host: string;
  port: number;
  pid: number;
  stop(): Promise<void>;
}

const START_MS = 20_000;

export async function untilListening(host: string, port: number): Promise<void> {
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
