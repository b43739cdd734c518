import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { createServer, connect } from 'node:net';

export interface EngineCall {
  line: string;
  /** By `performance.now()`. */
  begun: number;
  answered: number;
}

const REQUEST = /^(?:GET|POST|PUT|DELETE|HEAD) [^\r\n]*/;

/** Passes everything on to the socket of the engine, and notes the calls. */
export async function watchEngine(
  path: string,
  engine: string,
): Promise<{ calls: EngineCall[]; close(): void }> {
  rmSync(path, { force: true });
  const calls: EngineCall[] = [];
  const server = createServer({ allowHalfOpen: true }, (client) => {
    const socket = connect({ path: engine, allowHalfOpen: true });
    let current: { line: string; begun: number } | undefined;
    client.on('data', (chunk: Buffer) => {
      const line = REQUEST.exec(chunk.toString('latin1', 0, 500))?.[0];
      if (line !== undefined) current = { line, begun: performance.now() };
      socket.write(chunk);
    });
    socket.on('data', (chunk: Buffer) => {
      if (current) calls.push({ ...current, answered: performance.now() });
      current = undefined;
      client.write(chunk);
    });
    client.on('end', () => socket.end()).on('error', () => socket.destroy());
    socket.on('end', () => client.end()).on('error', () => client.destroy());
  }).listen(path);
  await once(server, 'listening');
  return { calls, close: () => void server.close() };
}
