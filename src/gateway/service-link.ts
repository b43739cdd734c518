import type { Readable, Writable } from 'node:stream';
import { MessageWriter, readMessages } from './json-lines.js';
import type { Denial, Flow, FromGateway, ToGateway } from './protocol.js';

/** A sandbox has a policy, secrets and authorities, which admission bounds. */
const LONGEST_TO_GATEWAY = 16 * 1024 * 1024;
export const LONGEST_FROM_GATEWAY = 1024 * 1024;
/** A service that reads nothing for a while loses the messages beyond it. */
const MOST_UNREAD_BYTES = 8 * 1024 * 1024;
const MOST_REQUESTS = 8_192;
/** The kernel takes addresses within milliseconds, unless the machine is overloaded. */
const BIND_TIMEOUT_MS = 5_000;
/** The service gives up first, so its reason arrives. */
const ASK_GRACE_MS = 500;
/** The secrets of a flow may have names of 64 KiB. */
const FLOWS_BYTES = 256 * 1024;

export type Settings = Exclude<ToGateway, { request: number }>;
type Answer = Extract<ToGateway, { request: number }>;
type Request = Extract<FromGateway, { request: number }>;
/** Each request without its number. */
type Question = Request extends infer R ? (R extends Request ? Omit<R, 'request'> : never) : never;

interface Handlers {
  settings: (message: Settings) => void;
  /** The service has closed its end, or broken the protocol. */
  end: (reason?: string) => void;
}

/** The connection of the gateway with its service. */
export class ServiceLink {
  private readonly writer: MessageWriter<FromGateway>;
  private readonly waiting = new Map<number, (answer?: Answer) => void>();
  private last = 0;

  constructor(input: Readable, output: Writable, { settings, end }: Handlers) {
    this.writer = new MessageWriter(output, MOST_UNREAD_BYTES);
    output.on('error', () => end());
    input.on('end', () => end()).on('error', () => end());
    readMessages<ToGateway>(input, LONGEST_TO_GATEWAY, {
      receive: (message) => {
        if (!('request' in message)) return settings(message);
        this.waiting.get(message.request)?.(message);
      },
      fail: end,
    });
  }

  ready(): void {
    this.writer.write({ type: 'ready' });
  }

  /** Whether the kernel knows the addresses of the name now. */
  async bind(sandbox: string, name: string, addresses: string[], ttlSecs: number): Promise<boolean> {
    const answer = await this.request(
      { type: 'bind', sandbox, name, addresses, ttlSecs },
      BIND_TIMEOUT_MS,
      'bound',
    );
    return answer?.ok ?? false;
  }

  /** The answer of the name servers of the machine. Undefined: there is none in time. */
  async ask(query: Buffer, timeoutMs: number): Promise<Buffer | undefined> {
    const answer = await this.request(
      { type: 'ask', query: query.toString('base64'), timeoutMs },
      timeoutMs + ASK_GRACE_MS,
      'asked',
    );
    return answer?.answer === undefined ? undefined : Buffer.from(answer.answer, 'base64');
  }

  denied(denial: Denial): boolean {
    return this.writer.write({ type: 'denied', denial });
  }

  flows(flows: readonly Flow[]): void {
    let part: Flow[] = [];
    let bytes = 0;
    for (const flow of flows) {
      const length = Buffer.byteLength(JSON.stringify(flow));
      if (bytes + length > FLOWS_BYTES) {
        this.writer.write({ type: 'flows', flows: part });
        [part, bytes] = [[], 0];
      }
      part.push(flow);
      bytes += length;
    }
    if (part.length > 0) this.writer.write({ type: 'flows', flows: part });
  }

  private request<Type extends Answer['type']>(
    question: Question,
    timeoutMs: number,
    type: Type,
  ): Promise<Extract<Answer, { type: Type }> | undefined> {
    if (this.waiting.size >= MOST_REQUESTS) return Promise.resolve(undefined);
    this.last += 1;
    const request = this.last;
    return new Promise((resolve) => {
      const settle = (answer?: Answer) => {
        clearTimeout(timer);
        this.waiting.delete(request);
        resolve(answer?.type === type ? (answer as Extract<Answer, { type: Type }>) : undefined);
      };
      const timer = setTimeout(settle, timeoutMs);
      this.waiting.set(request, settle);
      if (!this.writer.write({ ...question, request })) settle();
    });
  }
}
