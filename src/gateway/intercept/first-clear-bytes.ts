import { METHODS } from 'node:http';
import type { Duplex } from 'node:stream';

/** A client that sends nothing for so long waits for its server, as with SMTP. */
const SERVER_FIRST_MS = 1_000;
const HTTP2_PREFACE = 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n';
const LONGEST_METHOD = Math.max(...METHODS.map(({ length }) => length));

export type ClearProtocol = 'http/1.1' | 'h2' | 'other' | 'silent';

/**
 * The protocol that a client begins to speak. `silent`: it waits for the server. Throws when the client ends before.
 * The bytes stay in the stream.
 */
export async function readClearProtocol(client: Duplex, mayWait: boolean): Promise<ClearProtocol> {
  let bytes = Buffer.alloc(0);
  for (;;) {
    const isReadable = await untilReadable(client, mayWait ? SERVER_FIRST_MS : undefined);
    if (!isReadable) return 'silent';
    const chunk = client.read() as Buffer | null;
    if (!chunk) continue;
    bytes = Buffer.concat([bytes, chunk]);
    const protocol = protocolOf(bytes.toString('latin1', 0, HTTP2_PREFACE.length));
    if (protocol !== undefined) {
      client.unshift(bytes);
      return protocol;
    }
  }
}

/** Undefined: there are too few bytes. */
function protocolOf(text: string): ClearProtocol | undefined {
  if (HTTP2_PREFACE.startsWith(text)) return text === HTTP2_PREFACE ? 'h2' : undefined;
  // A client may send an empty line before its request.
  const method = /^(?:\r?\n)*([^ ]*)/.exec(text)![1]!;
  if (METHODS.includes(method) && text.includes(' ')) return 'http/1.1';
  const isPart =
    !text.includes(' ') && method.length <= LONGEST_METHOD && METHODS.some((each) => each.startsWith(method));
  return isPart ? undefined : 'other';
}

function untilReadable(client: Duplex, timeoutMs: number | undefined): Promise<boolean> {
  if (client.readableLength > 0) return Promise.resolve(true);
  return new Promise((resolve, reject) => {
    const timer =
      timeoutMs === undefined ? undefined : setTimeout(() => settle(() => resolve(false)), timeoutMs);
    const readable = () => {
      if (client.readableLength > 0) settle(() => resolve(true));
    };
    const end = () => settle(() => reject(new Error('the client closed the connection')));
    const settle = (then: () => void) => {
      clearTimeout(timer);
      client.off('readable', readable).off('end', end).off('close', end);
      then();
    };
    client.on('readable', readable).on('end', end).on('close', end);
  });
}
