import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

export interface Request {
  method: string;
  path: string;
  headers: Record<string, string>;
  body?: string;
}

export interface Job {
  /** Connections are spread over them. */
  targets: { host: string; port: number }[];
  connections: number;
  millis: number;
  /** Sent in rotation. */
  requests: Request[];
  /** Sends each request only once, and ends with the last. */
  once: boolean;
}

/** Milliseconds. */
export interface JobResult {
  count: number;
  millis: number;
  p50: number;
  p90: number;
  p99: number;
}

/** The load generator: a separate process, so that it takes no time from another event loop. */
export class Generator {
  private constructor(private readonly child: ChildProcess) {}

  static start(): Generator {
    return new Generator(fork(fileURLToPath(new URL('generator.js', import.meta.url))));
  }

  /** Throws unless every request succeeds. */
  async run(job: Job): Promise<JobResult> {
    const given = new AbortController();
    const answered = once(this.child, 'message', given) as Promise<[JobResult | { error: string }]>;
    const ended = once(this.child, 'exit', given).then(
      () => [{ error: 'the load generator ended' }] as const,
    );
    this.child.send(job);
    const [result] = await Promise.race([answered, ended]).finally(() => {
      for (const promise of [answered, ended]) promise.catch(() => undefined);
      given.abort();
    });
    if ('error' in result) throw new Error(result.error);
    return result;
  }

  async stop(): Promise<void> {
    this.child.disconnect();
    await once(this.child, 'exit');
  }
}
