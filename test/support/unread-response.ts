import { once } from 'node:events';
import { request, type IncomingMessage } from 'node:http';
import type { Client } from './client.js';

/** Asks for a long answer and reads none of it. That it is cut off is no error: it shows in `complete`. */
export async function askAndStare({ url, key }: Client, path: string): Promise<IncomingMessage> {
  const asked = request(`${url}${path}`, { headers: { authorization: `Bearer ${key}` } });
  asked.on('error', () => undefined);
  asked.end();
  const [response] = (await once(asked, 'response')) as [IncomingMessage];
  response.on('error', () => undefined);
  return response;
}
