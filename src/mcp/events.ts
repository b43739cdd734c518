import type { IncomingMessage } from 'node:http';
import { StringDecoder } from 'node:string_decoder';
import { Unreachable } from './refusal.js';

export interface StreamEvent {
  name: string;
  /** JSON. */
  data: string;
}

/** An event of the service has at most a piece of output of 64 KiB, as escaped text. */
const LONGEST_EVENT = 1024 * 1024;

/** The server-sent events of an answer of the service, without comments. Throws Unreachable when it breaks off. */
export async function* eventsOf(answer: IncomingMessage): AsyncGenerator<StreamEvent> {
  const decoder = new StringDecoder('utf8');
  let rest = '';
  try {
    for await (const part of answer as AsyncIterable<Buffer>) {
      const blocks = (rest + decoder.write(part)).split('\n\n');
      rest = blocks.pop()!;
      for (const block of blocks) {
        const event = eventIn(block);
        if (event) yield event;
      }
      if (rest.length > LONGEST_EVENT) throw new Error('an event of the service is too long');
    }
  } catch (cause) {
    throw new Unreachable((cause as Error).message, { cause });
  } finally {
    answer.destroy();
  }
}

function eventIn(block: string): StreamEvent | undefined {
  const lines = block.split('\n');
  const field = (name: string) => lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
  const [name, data] = [field('event'), field('data')];
  return name === undefined || data === undefined ? undefined : { name, data };
}
