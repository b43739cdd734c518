import { connect } from 'node:net';
import { until } from './polling.js';

/** Whether a program at the port sends something. */
export async function answers(host: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host, port, timeout: 1_000 });
    socket.on('data', () => resolve(true));
    socket.on('error', () => resolve(false));
    // A proxy accepts what it cannot pass on.
    socket.on('close', () => resolve(false));
    socket.on('timeout', () => {
      socket.destroy();
      resolve(false);
    });
  });
}

/** Waits for the program of the sandbox, which may not listen yet. */
export async function expectAnswers(host: string, port: number): Promise<void> {
  await until(
    () => answers(host, port),
    (found) => found,
  );
}
