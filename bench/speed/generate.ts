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
  /** Asked for in turn. */
  requests: Request[];
  /** Each only once: it ends with the last. */
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

/** The load generator: a process of its own, so that it takes nothing from the event loop of anybody else. */
export class Generator {
  private constructor(private readonly child: ChildProcess) {}

  static start(): Generator {
    return new Generator(fork(fileURLToPath(new URL('generator.js', import.meta.url))));
  }

  /** Throws when a request is not answered with success. */
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
