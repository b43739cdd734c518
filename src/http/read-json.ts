import type { Buffer } from 'node:buffer';
import type { IncomingMessage } from 'node:http';
import secureJson from 'secure-json-parse';
import { parseExact } from '../lib/exact-json.js';
import { ApiError } from './errors.js';
import { JsonScanner } from './json-scanner.js';

interface ReadOptions {
  /** Gets the number of bytes so far, and may throw. */
  arrived: (bytes: number) => void;
  /** Takes a long list of bytes below a key `content` as a ByteList. */
  byteLists: boolean;
}

/** Reads a JSON body. A refusal comes at once, and pauses the body. */
export function readJson(
  payload: IncomingMessage,
  { arrived, byteLists }: ReadOptions,
  done: (error: Error | null, body?: unknown) => void,
): void {
  const scanner = new JsonScanner(byteLists);
  let bytes = 0;
  payload.on('data', onData);
  payload.on('end', onEnd);
  payload.on('error', finish);

  function onData(chunk: Buffer): void {
    bytes += chunk.length;
    try {
      arrived(bytes);
      scanner.push(chunk);
    } catch (error) {
      payload.pause();
      finish(error as Error);
    }
  }

  function onEnd(): void {
    try {
      finish(null, bytes === 0 ? undefined : parse(scanner));
    } catch (error) {
      finish(error as Error);
    }
  }

  function finish(error: Error | null, body?: unknown): void {
    payload.off('data', onData).off('end', onEnd).off('error', finish);
    payload.on('error', () => undefined);
    done(error, body);
  }
}

/** The message of JSON.parse would quote the body, which may hold secrets. */
function parse(scanner: JsonScanner): unknown {
  const { text, hasLongNumbers } = scanner;
  try {
    return scanner.withLists(hasLongNumbers ? parseExact(text, parseSafe) : parseSafe(text));
  } catch {
    throw new ApiError('invalid_json');
  }
}

function parseSafe(text: string): unknown {
  return secureJson.parse(text, null, { protoAction: 'error', constructorAction: 'ignore' });
}
