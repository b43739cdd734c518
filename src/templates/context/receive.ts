import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { Type } from 'typebox';
import type { Context } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import { chunksOf } from '../../http/upload.js';
import { explainFirst, validatorOf } from '../../http/validation.js';
import type { Step } from '../../registry/step.js';
import { MOST_DOCKERFILE_BYTES } from '../dockerfile/parse.js';
import { ContextError, ContextReader } from './entries.js';
import { insertPiece, PIECE_BYTES, type ContextKey } from './queries.js';

const MIB = 1024 * 1024;
/** The most bytes of the archive after gunzip. The database has it until the build ends. */
export const MOST_CONTEXT_BYTES = 64 * MIB;
const MOST_TEXT_BYTES = 4 * MOST_DOCKERFILE_BYTES;
/** A header of an archive, which has its mark. */
const HEADER = 512;
const MARK = { at: 257, text: 'ustar' };

/** A body of JSON. */
const Commands = Type.Object(
  { from: Type.String(), commands: Type.Array(Type.String({ minLength: 1 }), { maxItems: 100 }) },
  { additionalProperties: false },
);
const isCommands = validatorOf(Commands);

export interface Received {
  dockerfile: string;
  /** Null: there is none. `digest`: of the archive. */
  context: { bytes: number; digest: string } | null;
  /** The digest of the body, as it was sent. */
  bodyDigest: string;
}

/**
 * Reads the body of a build: an archive with a Dockerfile, packed by gzip or not, or a Dockerfile alone, or commands as
 * JSON. Stores the archive. The caller deletes it when the request fails.
 */
export async function receiveBuild(
  ctx: Pick<Context, 'pool' | 'now'>,
  key: ContextKey,
  body: Readable | undefined,
  { dockerfilePath, step }: { dockerfilePath: string; step: Step },
): Promise<Received> {
  const hash = createHash('sha256');
  const chunks = body ? chunksOf(body, (chunk) => hash.update(chunk)) : none();
  try {
    const { begin, rest } = await peek(unpacked(chunks));
    const isArchive = begin.toString('latin1', MARK.at, MARK.at + MARK.text.length) === MARK.text;
    const received = isArchive
      ? await storeArchive(ctx, key, whole(begin, rest), { dockerfilePath, step })
      : { dockerfile: dockerfileIn(await readText(whole(begin, rest))), context: null };
    return { ...received, bodyDigest: hash.digest('hex') };
  } catch (error) {
    if (!(error instanceof ContextError)) throw error;
    throw new ApiError('invalid_request', error.message, { field: 'body' }, { cause: error });
  } finally {
    // Drains a refused body; otherwise the connection would stall.
    body?.resume();
  }
}

type Chunks = AsyncIterable<Buffer>;

async function* none(): Chunks {}

async function* whole(begin: Buffer, rest: AsyncIterator<Buffer>): Chunks {
  try {
    if (begin.length > 0) yield begin;
    for (let next = await rest.next(); next.done !== true; next = await rest.next()) yield next.value;
  } finally {
    // A body with an iterator cannot be drained.
    await rest.return?.();
  }
}

async function peek(chunks: Chunks): Promise<{ begin: Buffer; rest: AsyncIterator<Buffer> }> {
  const rest = chunks[Symbol.asyncIterator]();
  let begin: Buffer = Buffer.alloc(0);
  while (begin.length < HEADER) {
    const next = await rest.next();
    if (next.done === true) break;
    begin = Buffer.concat([begin, next.value]);
  }
  return { begin, rest };
}

async function* unpacked(chunks: Chunks): Chunks {
  const { begin, rest } = await peek(chunks);
  if (begin[0] !== 0x1f || begin[1] !== 0x8b) {
    yield* whole(begin, rest);
    return;
  }
  const source = Readable.from(whole(begin, rest));
  const gunzip = createGunzip();
  source.on('error', (error) => gunzip.destroy(error));
  const plain: Chunks = source.pipe(gunzip);
  try {
    yield* plain;
  } catch (error) {
    if (error instanceof ApiError) throw error;
    throw new ContextError('the body begins like gzip, and cannot be unpacked: send it again', {
      cause: error,
    });
  } finally {
    source.destroy();
  }
}

async function storeArchive(
  { pool, now }: Pick<Context, 'pool' | 'now'>,
  key: ContextKey,
  chunks: Chunks,
  { dockerfilePath, step }: { dockerfilePath: string; step: Step },
): Promise<Omit<Received, 'bodyDigest'>> {
  const reader = new ContextReader(dockerfilePath, MOST_DOCKERFILE_BYTES);
  const hash = createHash('sha256');
  const at = now();
  let [bytes, pieces] = [0, 0];
  const piece = Buffer.alloc(PIECE_BYTES);
  let filled = 0;
  const store = async () => {
    await insertPiece(pool, key, pieces, piece.subarray(0, filled), at);
    pieces += 1;
    filled = 0;
  };
  for await (const chunk of chunks) {
    bytes += chunk.length;
    if (bytes > MOST_CONTEXT_BYTES) {
      throw new ApiError(
        'payload_too_large',
        `the context has more than ${MOST_CONTEXT_BYTES / MIB} MiB: leave files out by .dockerignore, or download them with RUN`,
        { limit_bytes: MOST_CONTEXT_BYTES },
      );
    }
    hash.update(chunk);
    await reader.push(chunk, step);
    for (let copied = 0; copied < chunk.length;) {
      const length = chunk.copy(piece, filled, copied);
      copied += length;
      filled += length;
      if (filled === PIECE_BYTES) await store();
    }
  }
  if (filled > 0) await store();
  reader.end();
  const dockerfile = reader.contentOf(dockerfilePath);
  if (!dockerfile) {
    throw new ContextError(
      `the context has no Dockerfile "${dockerfilePath.slice(0, 200)}" of at most ${MOST_DOCKERFILE_BYTES} bytes: name it by dockerfile`,
    );
  }
  return { dockerfile: dockerfile.toString(), context: { bytes, digest: hash.digest('hex') } };
}

async function readText(chunks: Chunks): Promise<string> {
  const parts: Buffer[] = [];
  let length = 0;
  for await (const chunk of chunks) {
    length += chunk.length;
    if (length > MOST_TEXT_BYTES) {
      throw new ContextError(
        'the body is neither an archive of tar nor a Dockerfile: pack the context with tar',
      );
    }
    parts.push(chunk);
  }
  if (length === 0)
    throw new ContextError('the body is empty: send the context as an archive of tar, or a Dockerfile');
  return Buffer.concat(parts).toString();
}

function dockerfileIn(text: string): string {
  if (!text.trimStart().startsWith('{')) return text;
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new ContextError('the body begins like JSON, and is none: send a JSON object, or a Dockerfile');
  }
  if (!isCommands(value)) throw new ContextError(`the body: ${explainFirst(isCommands.errors ?? [])}`);
  const { from, commands } = value;
  if (!/^\S+$/.test(from)) throw new ContextError('from must be the name of an image, without spaces');
  const runs = commands.map((command) => `RUN ${JSON.stringify(['/bin/sh', '-c', command])}`);
  return [`FROM ${from}`, ...runs, ''].join('\n');
}
