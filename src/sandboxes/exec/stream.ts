import type { Buffer } from 'node:buffer';
import { ApiError } from '../../http/errors.js';
import { withIdleMarks, IDLE_MARK } from '../../http/sse.js';
import type { SecretMask } from '../../secrets/mask.js';
import type { Visit } from '../sessions/entrance.js';
import { explainEnd } from '../sessions/end-cause.js';
import { beginCommand } from './command.js';
import { commandOf, inputOf } from './read-command.js';
import { DEFAULT_TIMEOUT_SECS, type ExecRequest } from './schema.js';

/** The output that may wait for a slow reader, in bytes. The command waits beyond them. */
export const STREAM_WINDOW = 256 * 1024;
const KEEP_ALIVE_MS = 15_000;

/** Begins a command, and sends its output as server-sent events. */
export async function stream(
  visit: Visit,
  request: ExecRequest,
  inStep: InStep,
  mask: SecretMask | undefined,
): Promise<AsyncIterable<string>> {
  const [spec, input] = [commandOf(request, STREAM_WINDOW), inputOf(request)];
  const events = new EventQueue(inStep);
  const encoders = { stdout: encoderOf(request, mask), stderr: encoderOf(request, mask) };
  const timeoutMs = (request.timeout_secs ?? DEFAULT_TIMEOUT_SECS) * 1000;
  const { command, outcome, write } = await beginCommand(
    visit,
    spec,
    {
      started: (pid) => events.push('started', () => ({ pid })),
      output: (name, data) => {
        const taken = () => command.grant(data.length);
        events.push(name, () => encoders[name](data, false), taken);
      },
    },
    timeoutMs,
  );
  void write(input).then(() => command.end());
  void finish().finally(() => events.end());
  return textOf(events);

  async function finish(): Promise<void> {
    try {
      const { exitCode, oomKilled, timedOut, durationMs } = await outcome;
      for (const name of ['stdout', 'stderr'] as const) {
        events.push(name, () => encoders[name](undefined, true));
      }
      events.push('exited', () => ({
        exit_code: exitCode,
        timed_out: timedOut,
        oom_killed: oomKilled,
        duration_ms: durationMs,
      }));
    } catch (cause) {
      const error = await explainEnd(visit, cause);
      const { body } = error instanceof ApiError ? error : new ApiError('internal_error');
      events.push('failed', () => body);
    }
  }
}

/** Does the work in a step of its owner. */
export type InStep = <T>(work: () => T) => Promise<T>;

async function* textOf(events: EventQueue): AsyncIterable<string> {
  for await (const event of withIdleMarks(events, KEEP_ALIVE_MS)) {
    yield event === IDLE_MARK ? ': keep-alive\n\n' : event;
  }
}

type Encoder = (
  data: Buffer | undefined,
  isLast: boolean,
) => { text: string } | { base64: string } | undefined;

function encoderOf(request: ExecRequest, mask: SecretMask | undefined): Encoder {
  const encode = plainEncoderOf(request);
  if (mask === undefined) return encode;
  const masked = mask.stream();
  return (data, isLast) => {
    const shown = data === undefined ? masked.end() : masked.push(data);
    // The decoder takes its end without bytes.
    return shown.length === 0 && !isLast ? undefined : encode(shown, isLast);
  };
}

/** A character may be cut between two pieces of output: the decoder joins it. */
function plainEncoderOf({ output_encoding: encoding }: ExecRequest): Encoder {
  if (encoding === 'base64')
    return (data) => (data?.length ? { base64: data.toString('base64') } : undefined);
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  return (data, isLast) => {
    const text = decoder.decode(data, { stream: !isLast });
    return text === '' ? undefined : { text };
  };
}

/** Events in their order. `taken` runs when the reader has asked for the next one. */
class EventQueue implements AsyncIterable<string> {
  private readonly events: { render: () => string; taken: () => void }[] = [];
  private isOver = false;
  private wake: () => void = () => undefined;

  constructor(private readonly inStep: InStep) {}

  push(name: string, read: () => object | undefined, taken: () => void = () => undefined): void {
    const render = () => {
      const data = read();
      return data === undefined ? '' : `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
    };
    this.events.push({ render, taken });
    this.wake();
  }

  end(): void {
    this.isOver = true;
    this.wake();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<string> {
    for (;;) {
      const next = this.events.shift();
      if (next) {
        const text = await this.inStep(next.render);
        if (text !== '') yield text;
        next.taken();
      } else if (this.isOver) return;
      else await new Promise<void>((resolve) => (this.wake = resolve));
    }
  }
}
