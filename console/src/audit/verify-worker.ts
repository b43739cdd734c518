import { ExplainedError } from '../../../src/lib/explained-error.js';
import { verifyStream, type Progress, type StreamVerdict } from '../../../src/audit/verify/verify-stream.js';
import { readWebKeys } from '../../../src/audit/verify/web-crypto.js';

/** To the worker: first the keys, or an empty text, then a chunk for each `pull`. Null: the end. */
export type ToWorker = { keys: string } | { chunk: Uint8Array | null };

export type FromWorker =
  | { kind: 'pull' }
  | { kind: 'progress'; progress: Progress }
  | { kind: 'verdict'; verdict: StreamVerdict }
  | { kind: 'failed'; message: string };

let give: (chunk: Uint8Array | null) => void = () => undefined;

addEventListener('message', ({ data }: MessageEvent<ToWorker>) => {
  if ('chunk' in data) give(data.chunk);
  else void verify(data.keys);
});

async function verify(text: string): Promise<void> {
  try {
    const keys = text.trim() === '' ? undefined : await readWebKeys(text);
    const onProgress = (progress: Progress) => post({ kind: 'progress', progress });
    post({ kind: 'verdict', verdict: await verifyStream(chunks(), keys, onProgress) });
  } catch (error) {
    post({ kind: 'failed', message: explain(error) });
  }
}

async function* chunks(): AsyncGenerator<Uint8Array> {
  for (;;) {
    const next = new Promise<Uint8Array | null>((resolve) => (give = resolve));
    post({ kind: 'pull' });
    const chunk = await next;
    if (chunk === null) return;
    yield chunk;
  }
}

function explain(error: unknown): string {
  if (error instanceof ExplainedError) return error.message;
  if (error instanceof DOMException && error.name === 'NotSupportedError') {
    return 'This browser does not know Ed25519 signatures. Verify without a key, or use a newer browser.';
  }
  return `The verification failed, and proves nothing: ${String(error)}`;
}

function post(message: FromWorker): void {
  postMessage(message);
}
