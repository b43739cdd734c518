import { Agent, request, type IncomingMessage } from 'node:http';

const ignore = () => undefined;

/** A caller of the API with the key of one organization, on connections of its own. */
export class Client {
  private readonly agent = new Agent({ keepAlive: true, maxSockets: Infinity });

  constructor(
    readonly address: string,
    readonly key: string,
  ) {}

  /** The headers of the answer. The caller reads the body, or destroys it. */
  open(
    method: string,
    path: string,
    {
      body,
      headers = {},
      signal,
    }: { body?: string | Buffer; headers?: Record<string, string>; signal?: AbortSignal } = {},
  ): Promise<IncomingMessage> {
    return new Promise((resolve, reject) => {
      const outgoing = request(this.address + path, {
        method,
        agent: this.agent,
        ...(signal ? { signal } : {}),
        headers: {
          authorization: `Bearer ${this.key}`,
          ...(body === undefined
            ? {}
            : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }),
          ...headers,
        },
      });
      // After an early answer the rest of the body can fail while nothing else listens.
      outgoing.on('socket', (socket) => {
        if (!socket.listeners('error').includes(ignore)) socket.on('error', ignore);
      });
      outgoing.on('response', resolve);
      outgoing.on('error', reject);
      outgoing.end(body);
    });
  }

  /** The whole answer. */
  async call(
    method: string,
    path: string,
    options: Parameters<Client['open']>[2] = {},
  ): Promise<{ status: number; text: string }> {
    const response = await this.open(method, path, options);
    response.setEncoding('utf8');
    let text = '';
    for await (const piece of response) text += piece as string;
    return { status: response.statusCode!, text };
  }

  /** The body of an answer in JSON. Throws for an answer outside 2xx. */
  async json<T>(method: string, path: string, body?: object): Promise<T> {
    const { status, text } = await this.call(
      method,
      path,
      body === undefined ? {} : { body: JSON.stringify(body) },
    );
    if (status >= 300) throw new Error(`${method} ${path}: ${status} ${text.slice(0, 300)}`);
    return JSON.parse(text) as T;
  }

  close(): void {
    this.agent.destroy();
  }
}
