import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Webhook } from 'standardwebhooks';

interface Message {
  headers: IncomingHttpHeaders;
  text: string;
  body: any;
  /** In milliseconds. */
  at: number;
}

type Answer = number | { status: number; headers: Record<string, string> } | 'endless' | null;

/** An HTTP server that receives webhooks. */
export interface Receiver {
  url: string;
  messages: Message[];
  paths: string[];
  /**
   * A status, perhaps later or with headers, `endless` for an endless answer, null for none. A redirect leads to
   * `/elsewhere`.
   */
  answer: (message: Message) => Answer | Promise<Answer>;
  /** Headers of every answer. */
  headers: Record<string, string>;
  /** The number of attempts for the same message. */
  tries(body: any): number;
  /** Forgets all messages, and accepts everything again. */
  reset(): void;
  close(): Promise<void>;
}

export async function startReceiver(port = 0): Promise<Receiver> {
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    const take = async () => {
      const text = Buffer.concat(chunks).toString();
      const message = { headers: request.headers, text, body: JSON.parse(text), at: Date.now() };
      receiver.messages.push(message);
      receiver.paths.push(request.url!);
      const answer = await receiver.answer(message);
      if (answer === null) return;
      if (answer !== 'endless') {
        const { status, headers } = typeof answer === 'number' ? { status: answer, headers: {} } : answer;
        response.writeHead(status, { location: '/elsewhere', ...receiver.headers, ...headers }).end('thanks');
        return;
      }
      response.writeHead(200);
      const timer = setInterval(() => response.write('x'.repeat(65_536)), 1);
      response.on('close', () => clearInterval(timer));
    };
    request.on('end', () => void take());
  });
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  const receiver: Receiver = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    messages: [],
    paths: [],
    answer: () => 200,
    headers: {},
    tries: (body) => receiver.messages.filter((each) => each.body.data.id === body.data.id).length,
    reset() {
      receiver.messages = [];
      receiver.paths = [];
      receiver.answer = () => 200;
      receiver.headers = {};
    },
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return receiver;
}

/** The check of https://www.standardwebhooks.com, with code of its own. */
export function verify(secret: string, headers: IncomingHttpHeaders, text: string): boolean {
  const sentAt = new Date(Number(headers['webhook-timestamp']) * 1000);
  const expected = new Webhook(secret).sign(String(headers['webhook-id']), sentAt, text);
  return String(headers['webhook-signature']).split(' ').includes(expected);
}
