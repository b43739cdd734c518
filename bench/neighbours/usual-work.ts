import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import type { Client } from './client.js';
import { PreviewClient, SERVER } from './preview.js';
import { TAKE, withTake } from './take.js';

/** The kinds of work whose times are compared. */
export const KINDS = ['read', 'write', 'file', 'start', 'exec', 'inotify', 'terminal', 'preview'] as const;
export type Kind = (typeof KINDS)[number];

export interface Measured {
  /** Milliseconds from the moment at which a request was due. */
  times: Record<Kind, number[]>;
  errors: { kind: Kind; message: string }[];
}

const PATIENCE_MS = 120_000;
/** No request is due while so many of the same loop are open. */
const MOST_OPEN = 100;

/**
 * The work of an organization that uses little: reads, writes, files, starts, commands and requests to a preview, at a
 * fixed rate. Some commands need an inotify instance or a terminal.
 */
export class UsualWork {
  private constructor(
    private readonly client: Client,
    private readonly image: string | undefined,
    private readonly sandbox: string,
    private readonly volume: string,
    private readonly preview: PreviewClient | undefined,
    private readonly startMs: number,
  ) {}

  /** `image`: sandboxes have this image, and commands run in one of them. `startMs`: between two starts. */
  static async prepare(client: Client, image: string | undefined, startMs = 1_000): Promise<UsualWork> {
    const volume = await client.json<{ id: string }>('POST', '/v1/volumes', {
      name: 'usual',
      quota_mib: null,
    });
    const sandbox = await client.json<{ id: string }>(
      'POST',
      '/v1/sandboxes?start=true&wait_for=running',
      image === undefined ? specOf(image, ['sleep', '1000000']) : { ...specOf(image, SERVER), ...withTake() },
    );
    const preview = image === undefined ? undefined : await PreviewClient.open(client, sandbox.id);
    const work = new UsualWork(client, image, sandbox.id, volume.id, preview, startMs);
    await work.writeFile();
    return work;
  }

  /** A request without an answer within half a minute is an error. */
  async measure(seconds: number): Promise<Measured> {
    const measured: Measured = {
      times: { read: [], write: [], file: [], start: [], exec: [], inotify: [], terminal: [], preview: [] },
      errors: [],
    };
    const until = performance.now() + seconds * 1000;
    const reads = ['/v1/sandboxes?limit=20', `/v1/sandboxes/${this.sandbox}`, '/v1/events?limit=20'];
    let count = 0;
    const loops = [
      repeat(measured, 'read', until, 20, () => this.expect('GET', reads[(count += 1) % reads.length]!)),
      repeat(measured, 'write', until, 200, () => this.createAndDelete()),
      repeat(measured, 'file', until, 100, () => this.stat()),
      repeat(measured, 'file', until, 500, () => this.writeFile()),
      repeat(measured, 'start', until, this.startMs, () => this.startAndStop()),
      ...(this.image === undefined
        ? []
        : [
            repeat(measured, 'exec', until, 250, () => this.exec('true')),
            repeat(measured, 'inotify', until, 500, () => this.exec(TAKE, 'inotify')),
            repeat(measured, 'terminal', until, 500, () => this.exec(TAKE, 'terminals')),
            repeat(measured, 'preview', until, 100, () => this.visit()),
          ]),
    ];
    await Promise.all(loops);
    return measured;
  }

  close(): void {
    this.preview?.close();
  }

  private async visit(): Promise<void> {
    const { status } = await this.preview!.get('/');
    if (status !== 200) throw new Error(`GET / of the preview: ${status}`);
  }

  private async exec(cmd: string, ...args: string[]): Promise<void> {
    const path = `/v1/sandboxes/${this.sandbox}/exec`;
    const ended = await this.client.json<{ exit_code: number; stderr: string }>('POST', path, { cmd, args });
    if (ended.exit_code !== 0)
      throw new Error(ended.stderr.trim() || `${cmd} exited with ${ended.exit_code}`);
  }

  private async createAndDelete(): Promise<void> {
    const { id } = await this.create('/v1/sandboxes');
    await this.expect('DELETE', `/v1/sandboxes/${id}`);
  }

  private async startAndStop(): Promise<() => Promise<void>> {
    const { id } = await this.create('/v1/sandboxes?start=true&wait_for=running&wait_timeout=30');
    // Only the start is timed.
    return () => this.expect('DELETE', `/v1/sandboxes/${id}`);
  }

  private create(path: string): Promise<{ id: string }> {
    return this.client.json('POST', path, specOf(this.image, ['sleep', '1000000']));
  }

  private stat(): Promise<void> {
    return this.expect('GET', `/v1/volumes/${this.volume}/files/stat`, undefined, pathHeader('usual.txt'));
  }

  private async writeFile(): Promise<void> {
    const { status, text } = await this.client.call('PUT', `/v1/volumes/${this.volume}/files/content`, {
      body: Buffer.alloc(16 * 1024, 'x'),
      headers: pathHeader('usual.txt'),
    });
    if (status >= 300) throw new Error(`writing a file: ${status} ${text.slice(0, 200)}`);
  }

  private async expect(
    method: string,
    path: string,
    body?: object,
    headers: Record<string, string> = {},
  ): Promise<void> {
    const { status, text } = await this.client.call(method, path, {
      headers,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    if (status >= 300) throw new Error(`${method} ${path}: ${status} ${text.slice(0, 200)}`);
  }
}

export function pathHeader(path: string): Record<string, string> {
  return { 'x-msb-file-path': Buffer.from(path).toString('base64url') };
}

export function specOf(image: string | undefined, cmd: string[]): object {
  return {
    name: `s-${randomUUID().slice(0, 13)}`,
    image: { type: 'oci', reference: image ?? 'busybox' },
    resources: { vcpus: 1, memory_mib: 128 },
    runtime: { cmd },
    // The rules of a network would be a part of each start. No attack is about them.
    ...(image === undefined ? {} : { network: { enabled: false } }),
  };
}

/** Begins the work at a fixed rate, also while earlier ones are open. The returned function is not timed. */
async function repeat(
  { times, errors }: Measured,
  kind: Kind,
  until: number,
  everyMs: number,
  work: () => Promise<void | (() => Promise<void>)>,
): Promise<void> {
  const open = new Set<Promise<void>>();
  for (let due = performance.now(); due < until; due += everyMs) {
    await pause(Math.max(0, due - performance.now()));
    if (open.size >= MOST_OPEN) continue;
    const begun = due;
    const once = (async () => {
      try {
        const after = await inTime(work());
        times[kind].push(performance.now() - begun);
        if (after) await inTime(after());
      } catch (error) {
        errors.push({ kind, message: (error as Error).message });
      }
    })();
    open.add(once);
    void once.then(() => open.delete(once));
  }
  await Promise.all(open);
}

async function inTime<T>(work: Promise<T>): Promise<T> {
  const over = new AbortController();
  const late = pause(PATIENCE_MS, undefined, { signal: over.signal }).then(() => {
    throw new Error(`no answer within ${PATIENCE_MS / 1000} s`);
  });
  late.catch(() => undefined);
  try {
    return await Promise.race([work, late]);
  } finally {
    over.abort();
  }
}
