import { once } from 'node:events';
import type { ClientRequest, IncomingMessage, RequestOptions } from 'node:http';
import { Refusal, Unreachable } from './refusal.js';

/** Begins a request to the API: over the network, or on a connection within the process. */
export type Open = (path: string, options: RequestOptions) => ClientRequest;

interface ApiRequest {
  method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  path: string;
  query?: Record<string, string> | [string, string][];
  headers?: Record<string, string>;
  /** A JSON object, or the bytes of a file. */
  body?: object | Buffer;
}

/** The longest answer that is read whole, in bytes: a page of sandboxes. */
const MOST_JSON = 1024 * 1024;
/** The longest refusal that is read. */
const MOST_REFUSAL = 512 * 1024;

/** The REST API for one call of a tool: as the key of the caller, and for as long as the caller waits. */
export class Api {
  constructor(
    private readonly open: Open,
    private readonly headers: Record<string, string>,
    private readonly signal: AbortSignal,
  ) {}

  /** The answer of success, whose body is not read yet. Throws Refusal for every other one. */
  async send({ method, path, query = {}, headers, body }: ApiRequest): Promise<IncomingMessage> {
    const search = new URLSearchParams(query).toString();
    const isFile = Buffer.isBuffer(body);
    const bytes = isFile || body === undefined ? body : Buffer.from(JSON.stringify(body));
    const type = isFile ? 'application/octet-stream' : 'application/json';
    const request = this.open(search === '' ? path : `${path}?${search}`, {
      method,
      signal: this.signal,
      headers: {
        ...this.headers,
        ...(bytes ? { 'content-type': type, 'content-length': bytes.length } : {}),
        ...headers,
      },
    });
    request.end(bytes);
    const answer = await this.answerOf(request);
    if (answer.statusCode! < 300) return answer;
    throw refusalIn(answer, await readBytes(answer, MOST_REFUSAL).catch(() => Buffer.of()));
  }

  async json<T>(request: ApiRequest): Promise<T> {
    const text = await readBytes(await this.send(request), MOST_JSON);
    try {
      return JSON.parse(text.toString()) as T;
    } catch (cause) {
      throw new Unreachable('the answer of the service is no JSON: check its URL', { cause });
    }
  }

  private async answerOf(request: ClientRequest): Promise<IncomingMessage> {
    const answered = once(request, 'response') as Promise<[IncomingMessage]>;
    // An error after the answer has begun is also one of the answer.
    request.on('error', () => undefined);
    try {
      const [answer] = await answered;
      answer.on('error', () => undefined);
      return answer;
    } catch (cause) {
      this.signal.throwIfAborted();
      throw new Unreachable((cause as Error).message, { cause });
    }
  }
}

/** Throws AnswerTooLong beyond `most` bytes, and Unreachable for an answer that breaks off. */
async function readBytes(answer: IncomingMessage, most: number): Promise<Buffer> {
  const parts: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const part of answer as AsyncIterable<Buffer>) {
      bytes += part.length;
      if (bytes > most) throw new AnswerTooLong(most);
      parts.push(part);
    }
  } catch (cause) {
    throw cause instanceof AnswerTooLong ? cause : new Unreachable((cause as Error).message, { cause });
  }
  return Buffer.concat(parts);
}

export class AnswerTooLong extends Error {
  constructor(readonly bytes: number) {
    super(`the answer has more than ${bytes} bytes`);
  }
}

function refusalIn({ statusCode, headers }: IncomingMessage, body: Buffer): Refusal {
  const status = statusCode!;
  const retryAfter = headers['retry-after'];
  try {
    const { error } = JSON.parse(body.toString()) as { error?: Record<string, unknown> };
    const { code, message, details } = error!;
    return new Refusal(String(code), String(message), { status, details, retryAfter });
  } catch {
    const message = `the service answered with ${status}: check that its URL leads to Sandkeep`;
    return new Refusal('unknown', message, { status, details: null, retryAfter });
  }
}
