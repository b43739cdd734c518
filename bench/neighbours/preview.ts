import { setTimeout as pause } from 'node:timers/promises';
import { Client } from './client.js';

const PORT = 8_000;
const UNTIL_SERVED_MS = 400_000;
const RETRY_MS = 100;

/** A web server in a sandbox: a small file at `/`, and one of 64 MiB at `/large`. The image needs busybox. */
export const SERVER = [
  'sh',
  '-c',
  [
    'busybox mkdir -p /tmp/www && cd /tmp/www && echo hello >index.html',
    'busybox dd if=/dev/zero of=large bs=1M count=64 2>/dev/null',
    `exec busybox httpd -f -p ${PORT} -h .`,
  ].join(' && '),
];

/** A client of a preview of that server. */
export class PreviewClient {
  private constructor(
    private readonly client: Client,
    private readonly host: string,
  ) {}

  static async open(owner: Client, sandboxId: string): Promise<PreviewClient> {
    const made = await owner.json<{ origin: string; token: string }>(
      'POST',
      `/v1/sandboxes/${sandboxId}/previews`,
      { port: PORT },
    );
    const { host, port } = new URL(made.origin);
    // Not every resolver knows names below localhost.
    const preview = new PreviewClient(new Client(`http://127.0.0.1:${port}`, made.token), host);
    const until = performance.now() + UNTIL_SERVED_MS;
    while ((await preview.get('/')).status !== 200) {
      if (performance.now() > until) throw new Error('the server in the sandbox does not answer');
      await pause(RETRY_MS);
    }
    return preview;
  }

  /** Reads the whole answer, and keeps none of it. */
  async get(path: string, signal?: AbortSignal): Promise<{ status: number }> {
    const response = await this.client.open('GET', path, {
      headers: { host: this.host },
      ...(signal ? { signal } : {}),
    });
    for await (const _ of response);
    return { status: response.statusCode! };
  }

  close(): void {
    this.client.close();
  }
}
