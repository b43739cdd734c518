import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { PACKAGE_ROOT } from '../../../src/lib/package-root.js';
import { sleep } from '../../../src/lib/sleep.js';
import type { Command, Orders, Report } from './child.js';

const PROGRAM = join(PACKAGE_ROOT, 'dist', 'test', 'crash', 'support', 'child.js');
const ANSWER_TIMEOUT_MS = 300_000;
const KEPT_OUTPUT = 20_000;

export type Kind = 'api' | 'worker';

/** A process of the service. */
export interface Victim {
  readonly pid: number;
  /** The address of its API, once it is ready. */
  url: string;
  /** Resolves when the process has ended. */
  readonly gone: Promise<void>;
  isGone(): boolean;
  /** The end of its log. */
  output(): string;
  /** Resolves when it is ready, or has been killed. */
  serve(orders: Orders): Promise<void>;
  work(works: boolean): Promise<void>;
  kill(): Promise<void>;
  pause(): void;
  resume(): void;
  /** Stops cleanly. Throws when that fails. */
  stop(): Promise<void>;
}

/** Processes of the service; spares of each kind have loaded their modules. */
export class Victims {
  private readonly spares: Record<Kind, Victim[]> = { api: [], worker: [] };
  private readonly all = new Set<Victim>();
  /** Processes that ended unexpectedly. */
  readonly fallen: string[] = [];

  constructor(private readonly kept: Record<Kind, number>) {
    for (const kind of ['api', 'worker'] as const) this.refill(kind);
  }

  take(kind: Kind): Victim {
    const victim = this.spares[kind].shift()!;
    this.refill(kind);
    return victim;
  }

  async close(): Promise<void> {
    await Promise.all([...this.all].map((victim) => victim.kill()));
  }

  private refill(kind: Kind): void {
    while (this.spares[kind].length < this.kept[kind]) {
      const victim = launch(kind, (how) => this.fallen.push(how));
      this.spares[kind].push(victim);
      this.all.add(victim);
      void victim.gone.then(() => this.all.delete(victim));
    }
  }
}

function launch(kind: Kind, onFall: (how: string) => void): Victim {
  const child = fork(PROGRAM, [kind], { stdio: ['ignore', 'ignore', 'pipe', 'ipc'] });
  let text = '';
  child.stderr!.on('data', (chunk: Buffer) => (text = (text + chunk.toString()).slice(-KEPT_OUTPUT)));
  let told = false;
  let ended = false;
  child.once('exit', (code, signal) => {
    ended = true;
    if (!told) onFall(`process ${child.pid} ended by itself (${code ?? signal}): ${text}`);
  });
  const gone = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  const loaded = answerOf(child, gone);
  const victim: Victim = {
    pid: child.pid!,
    url: '',
    gone,
    isGone: () => ended,
    output: () => text,
    async serve(orders) {
      await loaded;
      const answer = await ask(child, gone, { serve: orders });
      if (answer && 'url' in answer) victim.url = answer.url;
    },
    async work(works) {
      await ask(child, gone, { work: works });
    },
    async kill() {
      told = true;
      if (!ended) child.kill('SIGKILL');
      await gone;
    },
    pause: () => void child.kill('SIGSTOP'),
    resume: () => void child.kill('SIGCONT'),
    async stop() {
      told = true;
      await ask(child, gone, { stop: true });
      await gone;
      if (child.exitCode !== 0) throw new Error(`a process did not stop in order: ${text}`);
    },
  };
  return victim;
}

async function ask(child: ChildProcess, gone: Promise<void>, command: Command): Promise<Report | undefined> {
  const answer = answerOf(child, gone);
  // The channel may have broken: then the process is gone.
  child.send(command, () => undefined);
  return answer;
}

/** Undefined when the process ends first. */
async function answerOf(child: ChildProcess, gone: Promise<void>): Promise<Report | undefined> {
  const patience = new AbortController();
  try {
    return await Promise.race([
      once(child, 'message', { signal: patience.signal }).then(([message]) => message as Report),
      gone.then(() => undefined),
      sleep(ANSWER_TIMEOUT_MS, patience.signal).then(() => {
        throw new Error(`process ${child.pid} did not answer within ${ANSWER_TIMEOUT_MS} ms`);
      }),
    ]);
  } finally {
    patience.abort();
  }
}
