import { createServer } from 'node:net';
import { beforeAll } from 'vitest';
import { sleep } from '../../src/lib/sleep.js';

/** A first build installs packages of Debian and npm. The time includes that of builds before it. */
const MOST_MS = 30 * 60_000;
/** Its end is the end of the process, also of one that is killed. */
const LOCK = '\0sandkeep-test-images';
const RETRY_MS = 200;

/**
 * Makes images before the tests of a file or a group. One process of the machine makes images at a time: the engine
 * keeps layers that are complete, but builds the same layer twice for two clients.
 */
export function prepareImages(make: () => void): void {
  beforeAll(async () => {
    const release = await acquire();
    try {
      make();
    } finally {
      release();
    }
  }, MOST_MS);
}

async function acquire(): Promise<() => void> {
  for (;;) {
    const server = createServer();
    const isOurs = await new Promise<boolean>((resolve, reject) => {
      server.once('listening', () => resolve(true));
      server.once('error', (error: NodeJS.ErrnoException) =>
        error.code === 'EADDRINUSE' ? resolve(false) : reject(error),
      );
      server.listen({ path: LOCK });
    });
    if (isOurs) return () => server.close();
    await sleep(RETRY_MS);
  }
}
