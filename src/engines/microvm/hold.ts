import { CaptureRefusedError } from '../../engine/runtime.js';
import { connectIn } from './supervisor.js';

/** The sandbox has half a minute to write its files, and the monitor writes what it holds of the disk. */
const LONGEST_WAIT_MS = 120_000;
/** `^` with the flag `m` would also match after a carriage return. */
const HELD = /(?:^|\n)held\n/;
const UNHELD = /(?:^|\n)unheld (.{0,200})\n/;
const BUSY = /(?:^|\n)busy\n/;
const MOST_TEXT = 4_096;

export interface Hold {
  /** The processors ran meanwhile. */
  isLost(): boolean;
  release(): void;
}

/**
 * Stops the processors of a sandbox that runs, after it has written its files to its disk. They run on at the release,
 * and when this process ends. Throws CaptureRefusedError.
 */
export async function holdProcessors(runDirectory: string, signal: AbortSignal): Promise<Hold> {
  const socket = await connectIn(runDirectory, 'supervisor.sock').catch((cause: unknown) => {
    throw new CaptureRefusedError('sandbox_changed', 'the sandbox ended before its capture', { cause });
  });
  let text = '';
  let isLost = false;
  const answered = new Promise<void>((resolve) => {
    socket.on('data', (chunk) => {
      text = (text + String(chunk)).slice(-MOST_TEXT);
      isLost ||= UNHELD.test(text) || BUSY.test(text);
      if (isLost || HELD.test(text)) resolve();
    });
    socket.on('close', () => {
      isLost = true;
      resolve();
    });
  });
  socket.on('error', () => undefined);
  const late = setTimeout(() => socket.destroy(), LONGEST_WAIT_MS);
  const aborted = () => socket.destroy();
  signal.addEventListener('abort', aborted);
  socket.write('hold\n');
  await answered;
  clearTimeout(late);
  signal.removeEventListener('abort', aborted);
  if (!isLost) return { isLost: () => isLost, release: () => socket.destroy() };
  socket.destroy();
  signal.throwIfAborted();
  if (BUSY.test(text)) throw new Error('another process captures the sandbox');
  const words = UNHELD.exec(text)?.[1] ?? 'it ended, or its supervisor does not answer';
  throw new CaptureRefusedError('sandbox_changed', `the sandbox cannot be captured now: ${words}`);
}
