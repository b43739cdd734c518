import { createMcpHandler } from '@modelcontextprotocol/server';
import type { IncomingHttpHeaders } from 'node:http';
import type { Api } from './api.js';
import type { McpMessage } from './schema.js';
import { makeMcpServer } from './server.js';

/** The library reads only the headers of its request. */
const ADDRESS = 'http://localhost/mcp';
/** A comment, so that the headers of an answer leave at once: proxies and clients wait for them. */
const BEGUN = Buffer.from(': begun\n\n');
/** Notes that a client has not read. Further ones are dropped, and the result has their text. */
const MOST_UNREAD = 16;

interface Question {
  message: McpMessage;
  headers: IncomingHttpHeaders;
  /** Whether the client takes a stream with notes of progress. */
  isStream: boolean;
  apiFor: (signal: AbortSignal) => Api;
  /** Aborts when the client has left or has cancelled the call. */
  over: AbortSignal;
  /** Aborts with a Refusal when the key no longer holds. */
  refused: AbortSignal;
}

interface Served {
  status: number;
  /** JSON, or server-sent events. */
  answer: string | AsyncIterable<Buffer>;
}

/**
 * Serves one message, with a server of its own that keeps nothing between messages, so any process serves the next one.
 * Undefined: the call was over before its answer.
 */
export async function serveMessage(question: Question): Promise<Served | undefined> {
  const { message, headers, isStream, apiFor, over, refused } = question;
  let unread = 0;
  const handler = createMcpHandler(
    () =>
      makeMcpServer({
        apiFor: (signal) => apiFor(AbortSignal.any([signal, over, refused])),
        refused,
        isBehind: () => {
          if (unread >= MOST_UNREAD) return true;
          unread += 1;
          return false;
        },
      }),
    // The server has nothing to say between calls.
    { responseMode: isStream ? 'sse' : 'auto', maxSubscriptions: 0 },
  );
  const close = () => void handler.close();
  over.addEventListener('abort', close, { once: true });
  const request = new Request(ADDRESS, { method: 'POST', headers: headersFor(headers) });
  const response = await untilAborted(over, handler.fetch(request, { parsedBody: message }));
  if (response === undefined) return undefined;
  const { status } = response;
  const hasEvents = response.headers.get('content-type')?.startsWith('text/event-stream') === true;
  if (isStream && hasEvents) {
    const taken = () => (unread = Math.max(unread - 1, 0));
    return { status, answer: events(response.body!, over, { taken, close }) };
  }
  const text = await untilAborted(over, response.text());
  close();
  return text === undefined ? undefined : { status, answer: hasEvents ? lastMessage(text) : text };
}

/** Those of the protocol. The service has checked the others. */
function headersFor(headers: IncomingHttpHeaders): Headers {
  const own = Object.entries(headers).filter(([name]) => name.startsWith('mcp-'));
  return new Headers([
    ...own.map(([name, value]): [string, string] => [name, String(value)]),
    ['accept', 'application/json, text/event-stream'],
    ['content-type', 'application/json'],
  ]);
}

async function* events(
  body: ReadableStream<Uint8Array>,
  over: AbortSignal,
  { taken, close }: { taken: () => void; close: () => void },
): AsyncIterable<Buffer> {
  const reader = body.getReader();
  try {
    yield BEGUN;
    for (;;) {
      const next = await untilAborted(over, reader.read());
      if (next?.value === undefined) return;
      taken();
      yield Buffer.from(next.value.buffer, next.value.byteOffset, next.value.byteLength);
    }
  } finally {
    close();
    void reader.cancel().catch(() => undefined);
  }
}

/** The answer follows all notes. */
function lastMessage(text: string): string {
  const [last = ''] = text
    .split('\n\n')
    .filter((block) => block.includes('data: '))
    .slice(-1);
  return last.slice(last.indexOf('data: ') + 'data: '.length);
}

/** Undefined: aborted. Neither a tool nor a stream ends at once for that. */
async function untilAborted<T>(signal: AbortSignal, work: Promise<T>): Promise<T | undefined> {
  if (signal.aborted) return undefined;
  return new Promise((resolve, reject) => {
    const leave = () => resolve(undefined);
    signal.addEventListener('abort', leave, { once: true });
    const settled = () => signal.removeEventListener('abort', leave);
    work.then(resolve, reject).finally(settled);
  });
}
