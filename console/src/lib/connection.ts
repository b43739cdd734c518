import { signal } from '@preact/signals';
import { BASE_PATH } from './base';

/** Whether the service answered the latest request. */
export const connection = signal<'up' | 'lost'>('up');

const PROBE_MS = 1000;
const waiting = new Set<() => void>();

/** Marks the connection as lost, and calls back when the service is ready again. */
export function retryWhenBack(signal: AbortSignal, callback: () => void): void {
  waiting.add(callback);
  signal.addEventListener('abort', () => waiting.delete(callback), { once: true });
  if (connection.value === 'lost') return;
  connection.value = 'lost';
  setTimeout(() => void probe(), PROBE_MS);
}

async function probe(): Promise<void> {
  if (!(await isReady().catch(() => false))) {
    setTimeout(() => void probe(), PROBE_MS);
    return;
  }
  connection.value = 'up';
  const callbacks = [...waiting];
  waiting.clear();
  for (const callback of callbacks) callback();
}

async function isReady(): Promise<boolean> {
  const answer = await fetch(`${BASE_PATH}/readyz`);
  // A request whose answer is not read never ends for the browser.
  await answer.text();
  return answer.ok;
}
