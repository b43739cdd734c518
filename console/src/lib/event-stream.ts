import { Problem, request } from './api';

interface StreamMessage {
  id: string | undefined;
  event: string;
  data: string;
}

interface StreamOptions {
  signal: AbortSignal;
  /** Called before the first message of each connection. */
  onOpen?: () => void;
  /** Called when the connection is lost. The next attempt follows by itself. */
  onLost?: () => void;
  onMessage: (message: StreamMessage) => void;
}

const FIRST_DELAY_MS = 500;
const LAST_DELAY_MS = 10_000;

/**
 * Reads server-sent events and reconnects after the last id. `EventSource` cannot: it hides the status of a refusal,
 * and it needs the name of each event beforehand. Returns when the stream is refused for good, with the reason.
 */
export async function followStream(address: string, options: StreamOptions): Promise<Problem | undefined> {
  let lastId: string | undefined;
  let delay = FIRST_DELAY_MS;
  while (!options.signal.aborted) {
    try {
      const answer = await request(address, {
        signal: options.signal,
        headers: {
          accept: 'text/event-stream',
          ...(lastId === undefined ? {} : { 'last-event-id': lastId }),
        },
      });
      options.onOpen?.();
      delay = FIRST_DELAY_MS;
      for await (const message of messagesOf(answer)) {
        if (message.id !== undefined) lastId = message.id;
        if (message.data !== '') options.onMessage(message);
      }
    } catch (error) {
      if (options.signal.aborted) return undefined;
      if (error instanceof Problem && error.status >= 400 && error.status < 500 && error.status !== 429)
        return error;
    }
    options.onLost?.();
    await new Promise((resolve) => setTimeout(resolve, delay));
    delay = Math.min(delay * 2, LAST_DELAY_MS);
  }
  return undefined;
}

async function* messagesOf(answer: Response): AsyncGenerator<StreamMessage> {
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value.replaceAll('\r', '');
    const blocks = text.split('\n\n');
    text = blocks.pop() ?? '';
    for (const block of blocks) yield parse(block);
  }
}

function parse(block: string): StreamMessage {
  const message: StreamMessage = { id: undefined, event: 'message', data: '' };
  const data: string[] = [];
  for (const line of block.split('\n')) {
    const [, field, value = ''] = /^(\w+):? ?(.*)$/.exec(line) ?? [];
    if (field === 'id') message.id = value;
    if (field === 'event') message.event = value;
    if (field === 'data') data.push(value);
  }
  return { ...message, data: data.join('\n') };
}
