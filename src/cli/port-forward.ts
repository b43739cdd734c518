import { Command, InvalidArgumentError, Option } from 'commander';
import { createServer, isIPv6, type AddressInfo, type Server, type Socket } from 'node:net';
import { WebSocket } from 'ws';
import { escapeControlsInLines } from '../lib/escape-controls.js';
import { ExplainedError } from '../lib/explained-error.js';
import { joinStreams, openPortSocket } from '../sandboxes/ports/port-socket.js';
import {
  messageOf,
  readClient,
  refusalOf,
  send,
  withClientOptions,
  type ClientOptions,
} from './api-client.js';

const HANDSHAKE_MS = 30_000;
/** The connections of a browser to one port are fewer. Others wait in the queue of the kernel. */
const MOST_CONNECTIONS = 500;
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

interface Pair {
  local: number;
  remote: number;
}

interface Options extends ClientOptions {
  bind: string;
}

/** A client of the API: it needs no access to the data directory. */
export function portForwardCommand(env: NodeJS.ProcessEnv): Command {
  const command = new Command('port-forward')
    .description('forward ports of this machine to ports of a sandbox, until it is interrupted')
    .argument('<sandbox>', 'the name or the id of the sandbox')
    .argument('<ports...>', 'LOCAL:REMOTE, or one number for both; a local port 0 is a free one', addPair);
  return withClientOptions(command)
    .addOption(
      new Option('--bind <address>', 'the address of this machine to listen on').default('127.0.0.1'),
    )
    .action(async (sandbox: string, pairs: Pair[], { bind, ...options }: Options) => {
      const { url, key } = readClient(options, env);
      await forwardPorts(new PortClient(url, key, sandbox), pairs, bind);
    });
}

function addPair(text: string, before: Pair[] | undefined): Pair[] {
  const [, first, second] = /^(\d{1,5})(?::(\d{1,5}))?$/.exec(text) ?? [];
  const [local, remote] = [Number(first), Number(second ?? first)];
  if (first === undefined || local > 65_535 || remote < 1 || remote > 65_535) {
    throw new InvalidArgumentError('It must be a port, or two with a colon, such as 8080:80.');
  }
  return [...(before ?? []), { local, remote }];
}

/** The ports of a sandbox, as the API offers them. */
class PortClient {
  constructor(
    private readonly base: string,
    private readonly key: string,
    private readonly sandbox: string,
  ) {}

  /** Throws ExplainedError when no connection can ever be opened, such as for a wrong key. */
  async check(port: number): Promise<void> {
    const answer = await send({ url: this.base, key: this.key }, this.path(port));
    // An answer of 400 says that a WebSocket would be accepted.
    if (answer.status === 400 && messageOf(answer.text).includes('WebSocket')) return;
    throw refusalOf(answer);
  }

  /** Carries one connection. Rejects when it could not be opened. */
  async carry(local: Socket, port: number): Promise<void> {
    const over = new AbortController();
    local.once('close', () => over.abort());
    const socket = new WebSocket(`${this.base}${this.path(port)}`, {
      headers: { authorization: `Bearer ${this.key}` },
      perMessageDeflate: false,
      handshakeTimeout: HANDSHAKE_MS,
    });
    const refused = new Promise<never>((_, reject) => {
      socket.once('unexpected-response', (_request, answer) => {
        let body = '';
        answer.setEncoding('utf8').on('data', (part: string) => (body = (body + part).slice(0, 65_536)));
        answer.once('close', () => {
          reject(new Error(messageOf(body) || `the service answered with ${answer.statusCode}`));
          socket.terminate();
        });
      });
    });
    refused.catch(() => undefined);
    const stream = await Promise.race([openPortSocket(socket, { port, signal: over.signal }), refused]);
    await joinStreams(local, stream).catch(() => {
      stream.destroy();
      reset(local);
    });
  }

  private path(port: number): string {
    const name = encodeURIComponent(this.sandbox);
    const place = UUID.test(this.sandbox) ? name : `by-name/${name}`;
    return `/v1/sandboxes/${place}/ports/${port}/connect`;
  }
}

async function forwardPorts(client: PortClient, pairs: readonly Pair[], bind: string): Promise<void> {
  await client.check(pairs[0]!.remote);
  const open = new Set<Socket>();
  const servers: Server[] = [];
  try {
    for (const pair of pairs) servers.push(await listen(client, pair, bind, open));
    await new Promise<void>((resolve) => {
      for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => resolve());
    });
  } finally {
    for (const server of servers) server.close();
    for (const socket of open) socket.destroy();
  }
}

async function listen(
  client: PortClient,
  { local, remote }: Pair,
  bind: string,
  open: Set<Socket>,
): Promise<Server> {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    open.add(socket);
    socket.on('error', () => undefined);
    socket.once('close', () => open.delete(socket));
    client.carry(socket, remote).catch((error: Error) => {
      if (!socket.destroyed) tell(`port ${remote}: ${error.message}`);
      reset(socket);
    });
  });
  server.maxConnections = MOST_CONNECTIONS;
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      const isTaken = error.code === 'EADDRINUSE';
      reject(
        new ExplainedError(
          isTaken
            ? `port ${local} of this machine is taken: choose another one, such as 0:${remote}`
            : `cannot listen on ${bind} port ${local}: ${error.message}`,
        ),
      );
    });
    server.listen(local, bind, resolve);
  });
  const { address, port } = server.address() as AddressInfo;
  const host = isIPv6(address) ? `[${address}]` : address;
  process.stdout.write(`forwarding ${host}:${port} to port ${remote} of the sandbox\n`);
  return server;
}

/** The program at the other end sees a failure. A clean end would look like the end of the data. */
function reset(socket: Socket): void {
  if (socket.destroyed) return;
  socket.resetAndDestroy();
}

function tell(message: string): void {
  process.stderr.write(`sandkeep: ${escapeControlsInLines(message)}\n`);
}
