import { Buffer } from 'node:buffer';
import type { Duplex } from 'node:stream';
import { HANDOVER, LAYOUT, LIMIT, REPLY } from './protocol.js';
import { RequestWriter } from './wire.js';

/** The parts of a start that process 1 takes later. See guest/init/handover.h. */
export interface Handover {
  /** Empty: none. */
  command: readonly string[];
  /** The sandbox ends with the command. */
  untilExit: boolean;
  /** `NAME=value`, over the environment of process 1. */
  env: readonly string[];
  /** Null: that of process 1. */
  workdir: string | null;
  scripts: readonly (readonly [name: string, text: string])[];
}

const ANSWERS_WITHIN_MS = 5_000;

/** Throws RangeError for one that process 1 would refuse. */
export function encodeHandover({ command, untilExit, env, workdir, scripts }: Handover): Buffer {
  const request = new RequestWriter()
    .fields(LAYOUT.handover, {
      flags: untilExit ? HANDOVER.untilExit : 0,
      args: command.length,
      env: env.length,
      scripts: scripts.length,
    })
    .text(workdir ?? '');
  for (const text of [...command, ...env]) request.text(text);
  for (const [name, script] of scripts) {
    const bytes = Buffer.from(script);
    request.text(name).fields(LAYOUT.script, { size: bytes.length }).bytes(bytes);
  }
  const bytes = request.end();
  if (bytes.length > LIMIT.handover) throw new RangeError(`a handover of ${bytes.length} bytes is too long`);
  return new RequestWriter().fields(LAYOUT.size, { bytes: bytes.length }).bytes(bytes).end();
}

/**
 * Hands an encoded handover over on a connection to process 1, and closes it. Resolves when process 1 has this
 * handover, or the one of an earlier attempt: it takes one in its life.
 */
export async function handOver(connection: Duplex, message: Buffer, signal: AbortSignal): Promise<void> {
  const stop = () => connection.destroy(new Error('process 1 of the sandbox does not answer'));
  const answer = new Promise<number | undefined>((resolve, reject) => {
    connection.once('data', (chunk: Buffer) => resolve(chunk[0]));
    connection.once('error', reject);
    connection.once('close', () => reject(new Error('the sandbox has ended')));
  });
  const late = setTimeout(stop, ANSWERS_WITHIN_MS);
  signal.addEventListener('abort', stop, { once: true });
  try {
    connection.write(message);
    const reply = await answer;
    if (reply !== REPLY.taken && reply !== REPLY.hasOne) {
      throw new Error(`process 1 of the sandbox refuses its command with ${reply}`);
    }
  } finally {
    clearTimeout(late);
    signal.removeEventListener('abort', stop);
    answer.catch(() => undefined);
    connection.destroy();
  }
}
