import { cutError } from './ended-error.js';

/** The result of work in the sandbox. Rejects with an ApiError when the visit ends before. */
export function untilEnded<T>(ended: AbortSignal, work: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const over = () => reject(cutError(ended));
    ended.addEventListener('abort', over, { once: true });
    if (ended.aborted) over();
    work.then(resolve, reject).finally(() => ended.removeEventListener('abort', over));
  });
}
