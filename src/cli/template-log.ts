import { sleep } from '../lib/sleep.js';
import { ExplainedError } from '../lib/explained-error.js';
import { open, type Client } from './api-client.js';

export interface LogEvent {
  source: 'build' | 'stdout' | 'stderr';
  ts: string;
  text: string;
}

const RETRY_MS = 1_000;
const ATTEMPTS = 10;

/** Calls `show` for each part of the log, until the build has ended. A stream that breaks is continued. */
export async function followLog(client: Client, id: string, show: (event: LogEvent) => void): Promise<void> {
  let after: string | undefined;
  for (let failures = 0; failures < ATTEMPTS; failures += 1) {
    const headers = after === undefined ? {} : { 'last-event-id': after };
    const answer = await open(client, `/v1/templates/${id}/log`, { headers });
    try {
      for await (const { event, id: position, data } of eventsOf(answer.body)) {
        if (event === 'end') return;
        if (event !== 'log') continue;
        after = position;
        failures = 0;
        show(JSON.parse(data) as LogEvent);
      }
    } catch (error) {
      // The connection broke.
      if (!(error instanceof TypeError)) throw error;
    }
    await sleep(RETRY_MS);
  }
  throw new ExplainedError(
    'the log breaks again and again: the build goes on, see "sandkeep templates show"',
  );
}

interface ServerEvent {
  event: string;
  id: string | undefined;
  data: string;
}

async function* eventsOf(body: Response['body']): AsyncIterable<ServerEvent> {
  const decoder = new TextDecoder();
  let text = '';
  for await (const chunk of body ?? []) {
    text += decoder.decode(chunk as Uint8Array, { stream: true });
    for (let end = text.indexOf('\n\n'); end !== -1; end = text.indexOf('\n\n')) {
      const fields = new Map(text.slice(0, end).split('\n').map(fieldOf));
      text = text.slice(end + 2);
      yield { event: fields.get('event') ?? '', id: fields.get('id'), data: fields.get('data') ?? '{}' };
    }
  }
}

function fieldOf(line: string): [string, string] {
  const colon = line.indexOf(': ');
  return colon === -1 ? [line, ''] : [line.slice(0, colon), line.slice(colon + 2)];
}
