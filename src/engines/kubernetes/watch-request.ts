import type { Cluster } from './client.js';

/** The API server ends a watch after this time. A connection that breaks silently is noticed a little later. */
const WATCH_SECS = 60;
const WATCH_DEADLINE_MS = (WATCH_SECS + 15) * 1_000;
const CONNECT_TIMEOUT_MS = 15_000;

export interface WatchRequest {
  query: { resourceVersion: string | undefined; labelSelector: string | undefined };
  signal: AbortSignal;
  onOpen: () => void;
  onEvent: (type: string, object: unknown) => void;
}

/**
 * One watch. Resolves when the server ends it, or at an abort. Rejects when it fails or is silent. No event follows its
 * end.
 */
export async function followWatch(
  { library, config }: Cluster,
  path: string,
  { query, signal, onOpen, onEvent }: WatchRequest,
): Promise<void> {
  let isOver = false;
  let deadline: NodeJS.Timeout | undefined;
  let opening: Promise<AbortController> | undefined;
  try {
    await new Promise<void>((resolve, reject) => {
      const end = (error?: unknown) => {
        isOver = true;
        if (error == null || (error as Error).name === 'AbortError') resolve();
        else reject(asError(error));
      };
      const endAfter = (millis: number) => {
        clearTimeout(deadline);
        deadline = setTimeout(() => end(new Error('the API server does not answer a watch')), millis);
      };
      signal.addEventListener('abort', () => end(), { once: true });
      if (signal.aborted) end();
      endAfter(CONNECT_TIMEOUT_MS);
      const asked = { ...query, allowWatchBookmarks: true, timeoutSeconds: WATCH_SECS };
      const onLine = (type: string, object: unknown) => {
        if (isOver) return;
        if (type === 'ERROR') end(object);
        else onEvent(type, object);
      };
      const open = async () => {
        opening = new library.Watch(config).watch(path, asked, onLine, end);
        await opening;
        if (isOver) return;
        endAfter(WATCH_DEADLINE_MS);
        onOpen();
      };
      open().catch(end);
    });
  } finally {
    clearTimeout(deadline);
    // A request that is still being opened ends as soon as it is open.
    void opening?.then(
      (request) => request.abort(),
      () => undefined,
    );
  }
}

/** The library reports some errors as the plain object of the API server. */
export function asError(error: unknown): Error {
  if (error instanceof Error) return error;
  const { message = String(error), code } = error as { message?: string; code?: number };
  return Object.assign(new Error(message), code === undefined ? {} : { statusCode: code });
}
