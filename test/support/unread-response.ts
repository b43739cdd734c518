import { once } from 'node:events';
import { request, type IncomingMessage } from 'node:http';
import type { Client } from './client.js';

/**
 * Requests a long answer and reads none of it. An end before the last byte is no error, but leaves `complete` false.
 */
export async function askAndStare({ url, key }: Client, path: string): Promise<IncomingMessage> {
  const asked = request(`${url}${path}`, { headers: { authorization: `Bearer ${key}` } });
  asked.on('error', () => undefined);
  asked.end();
  const [response] = (await once(asked, 'response')) as [IncomingMessage];
  response.on('error', () => undefined);
  return response;
}
