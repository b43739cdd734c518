import { createHash, type Hash } from 'node:crypto';
import { once } from 'node:events';
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { Readable } from 'node:stream';
import { FileDraft } from '../lib/atomic-file.js';
import { ExplainedError } from '../lib/explained-error.js';
import { TarScan } from '../registry/tar-scan.js';
import type { readClient } from './api-client.js';
import { refusalOf } from './api-client.js';
import { withBar } from './backup-progress.js';

type Client = ReturnType<typeof readClient>;

interface Downloaded {
  /** The digest of the image manifest in the archive. */
  digest: string;
  bytes: number;
}

/** Writes an archive to a file, which appears whole or not at all. `-`: the standard output. Throws ExplainedError. */
export async function download(
  client: Client,
  path: string,
  file: string,
  { replace }: { replace: boolean },
): Promise<Downloaded> {
  const answer = await exchange(client, 'GET', path);
  const digest = String(answer.headers['docker-content-digest']);
  const bytes = Number(answer.headers['content-length']);
  if (file === '-') {
    await copyVerified(answer, bytes, toOutput);
    return { digest, bytes };
  }
  const draft = await FileDraft.open(file).catch((error: Error) => {
    answer.destroy();
    throw new ExplainedError(`cannot write the archive: ${error.message}`);
  });
  try {
    await copyVerified(answer, bytes, async (chunk) => draft.handle.writeFile(chunk));
    await draft.publish({ replace });
  } catch (error) {
    await draft.discard();
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    throw new ExplainedError(`${file} exists: choose another file, or replace it with --force`);
  }
  return { digest, bytes };
}

async function copyVerified(
  answer: IncomingMessage,
  bytes: number,
  write: (chunk: Buffer) => Promise<void>,
): Promise<void> {
  const check = new BlobCheck();
  await withBar(bytes, async (bar) => {
    let length = 0;
    for await (const chunk of chunksOf(answer)) {
      check.push(chunk);
      length += chunk.length;
      bar.at(length);
      await write(chunk).catch((error: Error) => {
        throw new ExplainedError(`cannot write the archive: ${error.message}`);
      });
    }
    if (length !== bytes) throw new ExplainedError(INCOMPLETE);
    check.end();
  });
}

async function* chunksOf(answer: IncomingMessage): AsyncGenerator<Buffer> {
  try {
    for await (const chunk of answer as AsyncIterable<Buffer>) yield chunk;
  } catch (cause) {
    throw new ExplainedError(INCOMPLETE, { cause });
  }
}

async function toOutput(chunk: Buffer): Promise<void> {
  if (!process.stdout.write(chunk)) await once(process.stdout, 'drain');
}

const INCOMPLETE = 'the answer ended before the archive was complete: repeat the command';
const BLOB = /^blobs\/sha256\/([0-9a-f]{64})$/;

/** Compares each blob of an archive with the digest in its name. */
class BlobCheck {
  private blob: { digest: string; hash: Hash } | undefined;
  private readonly scan = new TarScan({
    entry: ({ path }) => {
      this.endBlob();
      const digest = BLOB.exec(path)?.[1];
      if (digest !== undefined) this.blob = { digest, hash: createHash('sha256') };
    },
    content: (bytes) => void this.blob?.hash.update(bytes),
  });

  push(chunk: Buffer): void {
    this.scan.push(chunk);
  }

  end(): void {
    this.scan.end();
    this.endBlob();
  }

  private endBlob(): void {
    if (this.blob && this.blob.hash.digest('hex') !== this.blob.digest)
      throw new ExplainedError(
        `the archive is damaged: a blob is not sha256:${this.blob.digest}; repeat the command`,
      );
    this.blob = undefined;
  }
}

/** Sends a file. `-`: the standard input. Returns the JSON of the answer. Throws ExplainedError. */
export async function upload<T>(client: Client, path: string, file: string): Promise<T> {
  const isInput = file === '-';
  const size = isInput ? undefined : await sizeOf(file);
  const answer = await withBar(size, async (bar) => {
    const source = isInput ? process.stdin : createReadStream(file);
    let sent = 0;
    source.on('data', (chunk: Buffer) => bar.at((sent += chunk.length)));
    return exchange(client, 'POST', path, { source, size });
  });
  return JSON.parse(await textOf(answer)) as T;
}

async function sizeOf(file: string): Promise<number> {
  const stats = await stat(file).catch((error: Error) => {
    throw new ExplainedError(`cannot read the archive: ${error.message}`);
  });
  if (!stats.isFile()) throw new ExplainedError(`cannot read the archive: ${file} is no file`);
  return stats.size;
}

/** The service takes its time before it answers, so no time-out of a client fits. */
async function exchange(
  { url, key }: Client,
  method: 'GET' | 'POST',
  path: string,
  body?: { source: Readable; size: number | undefined },
): Promise<IncomingMessage> {
  const open = url.startsWith('https:') ? httpsRequest : httpRequest;
  const request = open(`${url}${path}`, {
    method,
    headers: {
      authorization: `Bearer ${key}`,
      ...(body?.size === undefined ? {} : { 'content-length': body.size }),
    },
  });
  const answered = new Promise<IncomingMessage>((resolve, reject) => {
    request.once('response', resolve);
    request.once('error', (error: Error) =>
      reject(new ExplainedError(`cannot reach the service at ${url}: ${error.message}; check --url`)),
    );
  });
  if (body) {
    // A refusal may come before the whole body is sent.
    body.source.once('error', (error: Error) => request.destroy(error));
    body.source.pipe(request);
  } else {
    request.end();
  }
  const answer = await answered;
  body?.source.unpipe(request);
  body?.source.destroy();
  const status = answer.statusCode ?? 0;
  if (status < 300) return answer;
  throw refusalOf({ status, text: await textOf(answer) });
}

async function textOf(answer: IncomingMessage): Promise<string> {
  const parts: Buffer[] = [];
  for await (const part of answer as AsyncIterable<Buffer>) parts.push(part);
  return Buffer.concat(parts).toString();
}
