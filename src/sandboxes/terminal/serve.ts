import type { Buffer } from 'node:buffer';
import type { WebSocket } from 'ws';
import { ApiError } from '../../http/errors.js';
import { Serial } from '../../lib/serial.js';
import { beginCommand, type VisitCommand } from '../exec/command.js';
import { commandOf } from '../exec/read-command.js';
import { explainEnd } from '../sessions/end-cause.js';
import type { Visit } from '../sessions/entrance.js';
import { initialSize, resize } from './size.js';
import type { TerminalRequest } from './schema.js';
import { parseJson } from '../../lib/json.js';

/** The output that may be under way to the client, in bytes. */
const WINDOW = 256 * 1024;
const MAX_MESSAGE = 64 * 1024;
const NORMAL = 1000;
const POLICY_VIOLATION = 1008;
const TOO_BIG = 1009;

/** Binary messages are bytes of the terminal in both directions. Text messages are JSON. */
export async function serve(
  socket: WebSocket,
  visit: Visit,
  { rows, cols, ...request }: TerminalRequest,
): Promise<void> {
  const tell = (message: object) => socket.send(JSON.stringify(message));
  socket.on('close', () => visit.leave());
  // Messages wait until the command has begun.
  socket.pause();
  try {
    const spec = commandOf({ cmd: '/bin/sh', ...request }, WINDOW);
    const terminal: VisitCommand = await beginCommand(
      visit,
      { ...spec, terminal: initialSize(rows, cols) },
      {
        output: (_, data) => socket.send(data, { binary: true }, () => terminal.command.grant(data.length)),
      },
    );
    receive(socket, terminal);
    socket.resume();
    tell({ type: 'exited', exit_code: (await terminal.outcome).exitCode });
  } catch (cause) {
    const error = await explainEnd(visit, cause);
    tell({ type: 'failed', ...(error instanceof ApiError ? error : new ApiError('internal_error')).body });
    if (!(error instanceof ApiError)) throw error;
  } finally {
    socket.resume();
    socket.close(NORMAL);
  }
}

function receive(socket: WebSocket, { command, write }: VisitCommand): void {
  const input = new Serial();
  let waiting = 0;
  socket.on('message', (data: Buffer, isBinary: boolean) => {
    if (data.length > MAX_MESSAGE) {
      socket.close(TOO_BIG, `a message has at most ${MAX_MESSAGE} bytes`);
    } else if (isBinary) {
      waiting += 1;
      socket.pause();
      input.run(async () => {
        await write(data);
        waiting -= 1;
        if (waiting === 0) socket.resume();
      });
    } else {
      const size = resizeOf(data.toString());
      if (size) resize(command, size.rows, size.cols);
      else socket.close(POLICY_VIOLATION, 'a text message must be {"type":"resize","rows":24,"cols":80}');
    }
  });
}

function resizeOf(text: string): { rows: number; cols: number } | undefined {
  const { type, rows, cols } = (parseJson(text) ?? {}) as { type?: unknown; rows?: unknown; cols?: unknown };
  return type === 'resize' && isNumber(rows) && isNumber(cols) ? { rows, cols } : undefined;
}

function isNumber(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value);
}
