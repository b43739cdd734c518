import type { Client } from './client.js';

/** A server-sent event; a comment has only its text. */
export interface ServerEvent {
  event?: string;
  id?: string;
  data?: any;
  comment?: string;
  /** The time until the client connects again, in milliseconds. */
  retry?: string;
}

/** The next event, without the comments before it, which only show that the connection is alive. */
export async function nextEvent(events: AsyncGenerator<ServerEvent>): Promise<ServerEvent> {
  for (;;) {
    const { value, done } = await events.next();
    if (done) throw new Error('the stream has ended');
    if (value.comment === undefined) return value;
  }
}

/** Opens a stream of server-sent events. `headers`: additional ones. `body`: makes it a POST. */
export async function openEvents(
  client: Client,
  path: string,
  {
    headers = {},
    signal,
    body,
  }: { headers?: Record<string, string>; signal?: AbortSignal; body?: object } = {},
) {
  const post = { method: 'POST', body: JSON.stringify(body) };
  const type = { 'content-type': 'application/json' };
  const common = { authorization: `Bearer ${client.key}`, accept: 'text/event-stream' };
  const response = await fetch(`${client.url}${path}`, {
    ...(body ? post : {}),
    headers: { ...common, ...(body ? type : {}), ...headers },
    ...(signal ? { signal } : {}),
  });
  return { response, events: eventsOf(response) };
}

async function* eventsOf(response: Response): AsyncGenerator<ServerEvent> {
  const decoder = new TextDecoder();
  let text = '';
  for await (const chunk of response.body!) {
    text += decoder.decode(chunk as Uint8Array, { stream: true });
    const blocks = text.split('\n\n');
    text = blocks.pop()!;
    for (const block of blocks) yield parse(block);
  }
  if (text !== '') throw new Error(`the stream ended inside an event: ${text}`);
}

function parse(block: string): ServerEvent {
  const event: ServerEvent = {};
  for (const line of block.split('\n')) {
    const [, name, value] = /^(\w*): ?(.*)$/.exec(line) ?? [];
    if (name === '') event.comment = value!;
    else if (name === 'data') event.data = JSON.parse(value!);
    else if (name === 'event' || name === 'id' || name === 'retry') event[name] = value!;
    else throw new Error(`not a line of an event: ${line}`);
  }
  return event;
}

/** All events until the stream ends, without comments. */
export async function allEvents(events: AsyncIterable<ServerEvent>): Promise<ServerEvent[]> {
  const all: ServerEvent[] = [];
  for await (const event of events) if (event.comment === undefined) all.push(event);
  return all;
}
