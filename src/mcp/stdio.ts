import { serveStdio as serveProtocol, StdioServerTransport } from '@modelcontextprotocol/server/stdio';
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { VERSION } from '../lib/version.js';
import { Api, type Open } from './api.js';
import { makeMcpServer } from './server.js';

/** A service or a proxy that does not take connections is away. Answers may take as long as a command. */
const CONNECT_MS = 10_000;

/** Serves the protocol on standard input and output until the input ends. Calls end with it. */
export async function serveStdio({ url, key }: { url: string; key: string }): Promise<void> {
  const open = opener(url);
  const headers = { authorization: `Bearer ${key}`, 'user-agent': `sandkeep-mcp/${VERSION}` };
  const transport = new StdioServerTransport();
  const over = new Promise<void>((resolve) => {
    process.stdin.once('close', resolve);
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => resolve());
  });
  const parts = {
    apiFor: (signal: AbortSignal) => new Api(open, headers, signal),
    isBehind: () => process.stdout.writableNeedDrain,
  };
  const served = serveProtocol(() => makeMcpServer(parts), { transport });
  await over;
  // It aborts the calls in progress, whose requests then end.
  await served.close();
  process.stdin.destroy();
}

function opener(base: string): Open {
  const send = base.startsWith('https:') ? httpsRequest : httpRequest;
  return (path, options) => {
    // A new connection for each request: an idle one may just be closing, and a request is sent only once.
    const request = send(`${base}${path}`, { ...options, agent: false });
    const timer = setTimeout(() => {
      request.destroy(new Error(`cannot connect to ${base} within ${CONNECT_MS / 1_000} s`));
    }, CONNECT_MS);
    const connected = () => clearTimeout(timer);
    request.once('socket', (socket) => {
      socket.once(base.startsWith('https:') ? 'secureConnect' : 'connect', connected);
    });
    request.once('close', connected);
    return request;
  };
}
