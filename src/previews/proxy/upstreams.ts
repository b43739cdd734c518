import { Agent, type ClientRequestArgs } from 'node:http';
import type { Duplex } from 'node:stream';
import { ApiError } from '../../http/errors.js';
import type { OpenPort, PreviewTarget } from '../types.js';

/** Servers commonly close idle connections after five seconds. */
const IDLE_MS = 4_000;
/** The idle connections of one port of a sandbox. */
const MOST_IDLE = 32;
/** How long the port of a running sandbox may take to accept. */
const CONNECT_MS = 10_000;

export interface UpstreamOptions extends ClientRequestArgs {
  target: PreviewTarget;
}

/** HTTP connections to ports of sandboxes. Those of a run end with it, because its agent ends. */
export class Upstreams {
  /** For requests that can be sent again when their connection has just been closed. */
  readonly kept: Agent;
  readonly single: Agent;

  constructor(private readonly open: OpenPort) {
    this.kept = new PortAgent(open, true);
    this.single = new PortAgent(open, false);
  }

  /** A stream of bytes that no other request uses. */
  connect(target: PreviewTarget): Promise<Duplex> {
    return openInTime(this.open, target);
  }

  close(): void {
    this.kept.destroy();
    this.single.destroy();
  }
}

class PortAgent extends Agent {
  /** Ends the watch over an idle stream. */
  private readonly idle = new WeakMap<Duplex, () => void>();

  constructor(
    private readonly open: OpenPort,
    keepAlive: boolean,
  ) {
    super({ keepAlive, maxFreeSockets: MOST_IDLE, scheduling: 'lifo' });
  }

  override getName(options?: Partial<UpstreamOptions>): string {
    const target = options?.target;
    return target ? `${target.orgId} ${target.sandboxId} ${target.port}` : '';
  }

  override createConnection(
    options: ClientRequestArgs,
    callback?: (error: Error | null, stream: Duplex) => void,
  ): undefined {
    const { target } = options as UpstreamOptions;
    void this.openFor(target, callback);
  }

  private async openFor(
    target: PreviewTarget,
    created: ((error: Error | null, stream: Duplex) => void) | undefined,
  ): Promise<void> {
    let stream: Duplex;
    try {
      stream = await openInTime(this.open, target);
    } catch (error) {
      created?.(error as Error, undefined as unknown as Duplex);
      return;
    }
    created?.(null, stream);
  }

  /** Node's own would call methods that only TCP sockets have. */
  override keepSocketAlive(stream: Duplex): true {
    const close = () => stream.destroy();
    const timer = setTimeout(close, IDLE_MS).unref();
    const end = () => {
      clearTimeout(timer);
      stream.off('end', close).off('data', close).off('close', end);
    };
    // The server has closed its side, or sends an answer that nobody has asked for.
    stream.once('end', close).once('data', close).once('close', end);
    this.idle.set(stream, end);
    return true;
  }

  override reuseSocket(stream: Duplex, request: Parameters<Agent['reuseSocket']>[1]): void {
    this.idle.get(stream)!();
    // Node's own also removes the listener for errors of idle sockets, which is one more for each request otherwise.
    super.reuseSocket(withRef(stream), request);
  }
}

/** Node keeps its process alive for a socket in use. These streams need no such thing. */
function withRef(stream: Duplex): Duplex {
  return 'ref' in stream ? stream : Object.assign(stream, { ref: () => stream });
}

/** The signal of an attempt would end the stream too, so it has no fixed time. */
async function openInTime(open: OpenPort, target: PreviewTarget): Promise<Duplex> {
  const late = new AbortController();
  const reason = new ApiError(
    'no_answer_of_sandbox',
    `port ${target.port} of the sandbox accepts no connection`,
  );
  const timer = setTimeout(() => late.abort(reason), CONNECT_MS);
  try {
    return await open(target, late.signal);
  } finally {
    clearTimeout(timer);
  }
}
