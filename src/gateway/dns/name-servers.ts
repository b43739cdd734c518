import { sleep } from '../../lib/sleep.js';
import { exchange, type ServerAddress } from './exchange.js';
import { RCODES, rcodeOf } from './question.js';

/** A server that is slow or dead costs this much before the next one is asked too. */
const STAGGER_MS = 200;
/** A server that failed is asked after the others for so long. */
const PENALTY_MS = 30_000;
const MOST_SERVERS = 8;

export type Exchange = (query: Buffer, server: ServerAddress, signal: AbortSignal) => Promise<Buffer>;

interface Entry {
  server: ServerAddress;
  failedAt: number;
}

interface Attempt {
  entry: Entry;
  begun: Promise<void>;
  /** Rejects if the server fails. */
  answer: Promise<Buffer>;
}

/**
 * Several name servers that know the same names. They are asked in their order, each a little after the previous one or
 * at once when that fails. The first good answer wins.
 */
export class NameServers {
  private readonly entries: Entry[];

  constructor(
    servers: readonly ServerAddress[],
    private readonly ask: Exchange = exchange,
    private readonly now: () => number = () => performance.now(),
  ) {
    this.entries = servers.slice(0, MOST_SERVERS).map((server) => ({ server, failedAt: -Infinity }));
  }

  /**
   * Undefined: no server answered in time. A refusal or a failure counts only when no server has better. `query` is in
   * the wire format.
   */
  async query(query: Buffer, timeoutMs: number): Promise<Buffer | undefined> {
    const ended = new AbortController();
    const timer = setTimeout(() => ended.abort(new Error('no name server answered in time')), timeoutMs);
    const failures: Buffer[] = [];
    const askOne = async (entry: Entry) => {
      const answer = await this.ask(query, entry.server, ended.signal);
      if (isGood(answer)) return answer;
      failures.push(answer);
      throw new Error('the name server failed');
    };
    const attempts: Attempt[] = [];
    for (const entry of this.inOrder()) attempts.push(attempt(entry, attempts.at(-1), askOne, ended.signal));
    try {
      const won = await Promise.any(attempts.map(({ answer }, position) => answer.then(() => position)));
      for (const { entry } of attempts.slice(0, won)) entry.failedAt = this.now();
      attempts[won]!.entry.failedAt = -Infinity;
      return await attempts[won]!.answer;
    } catch {
      return failures[0];
    } finally {
      clearTimeout(timer);
      ended.abort(new Error('another name server has answered'));
    }
  }

  private inOrder(): Entry[] {
    const since = this.now() - PENALTY_MS;
    const isPenalized = ({ failedAt }: Entry) => failedAt > since;
    return [...this.entries.filter((entry) => !isPenalized(entry)), ...this.entries.filter(isPenalized)];
  }
}

function attempt(
  entry: Entry,
  previous: Attempt | undefined,
  ask: (entry: Entry) => Promise<Buffer>,
  signal: AbortSignal,
): Attempt {
  const begun = previous ? turnAfter(previous, signal) : Promise.resolve();
  return { entry, begun, answer: begun.then(() => ask(entry)) };
}

async function turnAfter({ begun, answer }: Attempt, signal: AbortSignal): Promise<void> {
  const failed = new Promise<void>((resolve) => void answer.catch(() => resolve()));
  await Promise.race([failed, begun.then(() => sleep(STAGGER_MS, signal))]);
  signal.throwIfAborted();
}

function isGood(answer: Buffer): boolean {
  const rcode = rcodeOf(answer);
  return rcode === RCODES.noError || rcode === RCODES.nxDomain;
}
