import type { Progress, StreamVerdict } from '../../../src/audit/verify/verify-stream.js';
import type { FromWorker, ToWorker } from './verify-worker';

export type { Progress, StreamVerdict };

/** A reason why nothing was proved. */
export class Unproved extends Error {}

/** Verifies an export in a worker, chunk by chunk. Rejects with `Unproved`, or with the reason of an abort. */
export function verifyInWorker(
  body: ReadableStream<Uint8Array>,
  keys: string,
  signal: AbortSignal,
  onProgress: (progress: Progress) => void,
): Promise<StreamVerdict> {
  const worker = new Worker(new URL('./verify-worker.ts', import.meta.url), { type: 'module' });
  const reader = body.getReader();
  const tell = (message: ToWorker, transfer: Transferable[] = []) => worker.postMessage(message, transfer);
  const verdict = new Promise<StreamVerdict>((resolve, reject) => {
    const pull = async () => {
      try {
        const { value } = await reader.read();
        tell({ chunk: value ?? null }, value ? [value.buffer] : []);
      } catch {
        reject(new Unproved('The download broke off, so nothing is proved. Try again.'));
      }
    };
    worker.addEventListener('message', ({ data }: MessageEvent<FromWorker>) => {
      if (data.kind === 'pull') void pull();
      else if (data.kind === 'progress') onProgress(data.progress);
      else if (data.kind === 'verdict') resolve(data.verdict);
      else reject(new Unproved(data.message));
    });
    worker.addEventListener('error', () => reject(new Unproved('The worker of the verification failed.')));
    signal.addEventListener('abort', () => reject(new Unproved('The verification was stopped.')));
    tell({ keys });
  });
  return verdict.finally(() => {
    worker.terminate();
    reader.cancel().catch(() => undefined);
  });
}
