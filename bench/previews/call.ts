import { ExplainedError } from '../../src/lib/explained-error.js';
import type { Server } from '../speed/processes.js';

export async function call(
  { host, port, key }: Server,
  method: string,
  path: string,
  body?: object,
): Promise<Record<string, string>> {
  const response = await fetch(`http://${host}:${port}${path}`, {
    method,
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    ...(body ? { body: JSON.stringify(body) } : {}),
  });
  const answer = (await response.json().catch(() => ({}))) as Record<string, string>;
  if (!response.ok) throw new ExplainedError(`${method} ${path}: ${JSON.stringify(answer)}`);
  return answer;
}
