import { expect, it } from 'vitest';
import { errnoMessage, errnoOf } from '../../../src/guest/errno.js';
import type { Guest } from '../../../src/guest/guest.js';
import { openGuestStream } from '../../../src/sandboxes/ports/guest-stream.js';
import { ask, httpSandbox, startPreviews } from '../../support/previews.js';

/** Refuses each connection, as an agent does whose places are all taken. */
const guest = {
  connect: (_address: string, _port: number, { closed }: { closed: (failure: string) => void }) => {
    setImmediate(() => closed(errnoMessage(errnoOf('EAGAIN'))));
    return { close: () => undefined };
  },
} as unknown as Guest;

it('says that a sandbox has too many connections, and when to try again', async () => {
  const previews = await startPreviews(
    httpSandbox(() => undefined),
    {
      openPort: ({ port }, signal) => openGuestStream(guest, { port, signal, touch: () => undefined }),
    },
  );
  const { status, headers, text } = await ask(previews);
  expect([status, headers['retry-after'], JSON.parse(text).error.message]).toEqual([
    429,
    '1',
    expect.stringContaining('too many open connections'),
  ]);
});
