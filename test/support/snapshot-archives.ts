import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import tar from 'tar-stream';
import { END_OF_ARCHIVE, tarHeader, tarPadding } from '../../src/lib/tar-entry.js';
import type { Client } from './client.js';
import { layoutFiles, type Files } from './image-files.js';

export const sha256Of = (bytes: Buffer) => `sha256:${createHash('sha256').update(bytes).digest('hex')}`;

/** An archive of regular files. */
export function packFiles(files: Files): Buffer {
  const entries = Object.entries(files).flatMap(([name, content]) => {
    const bytes = content as Buffer;
    return [tarHeader(name, bytes.length), bytes, tarPadding(bytes.length)];
  });
  return Buffer.concat([...entries, END_OF_ARCHIVE]);
}

/** A valid archive that is a text, too. */
export const TEXT_ARCHIVE = packFiles(layoutFiles([END_OF_ARCHIVE])).toString('latin1');

export async function filesOf(archive: Buffer): Promise<Map<string, Buffer>> {
  const files = new Map<string, Buffer>();
  const extract = tar.extract();
  extract.on('entry', ({ name }: { name: string }, content, next) => {
    const parts: Buffer[] = [];
    content.on('data', (part: Buffer) => parts.push(part));
    content.once('end', () => {
      files.set(name, Buffer.concat(parts));
      next();
    });
  });
  await new Promise<void>((resolve, reject) => {
    extract.once('finish', resolve).once('error', reject);
    Readable.from([archive]).pipe(extract);
  });
  return files;
}

interface Exported {
  status: number;
  headers: Headers;
  bytes: Buffer;
}

export async function exportOf(client: Client, reference: string): Promise<Exported> {
  const answer = await fetch(`${client.url}/v1/snapshots/${reference}/export`, {
    headers: { authorization: `Bearer ${client.key}` },
  });
  return { status: answer.status, headers: answer.headers, bytes: Buffer.from(await answer.arrayBuffer()) };
}

export async function importTo(
  client: Client,
  archive: Buffer,
  query: Record<string, string>,
  headers: Record<string, string> = {},
): Promise<{ status: number; headers: Headers; body: any; text: string }> {
  const answer = await fetch(`${client.url}/v1/snapshots/import?${new URLSearchParams(query).toString()}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${client.key}`, ...headers },
    body: new Uint8Array(archive),
  });
  const text = await answer.text();
  return { status: answer.status, headers: answer.headers, text, body: JSON.parse(text) };
}

/** The image manifest of an archive in the OCI layout. Every blob has the digest of its name. */
export async function imageIn(archive: Buffer): Promise<{ digest: string; manifest: any; config: any }> {
  const files = await filesOf(archive);
  for (const [name, bytes] of files) {
    const [, digest] = /^blobs\/sha256\/(.*)$/.exec(name) ?? [];
    if (digest !== undefined && sha256Of(bytes) !== `sha256:${digest}`)
      throw new Error(`the blob ${name} has another digest`);
  }
  const document = (name: string) => JSON.parse(files.get(name)!.toString());
  const blob = (digest: string) => document(`blobs/${digest.replace(':', '/')}`);
  const [{ digest, size }] = document('index.json').manifests;
  const manifest = blob(digest);
  const bytes = files.get(`blobs/${digest.replace(':', '/')}`)!;
  if (bytes.length !== size) throw new Error('the manifest has another size');
  for (const layer of [manifest.config, ...manifest.layers]) {
    if (files.get(`blobs/${layer.digest.replace(':', '/')}`)?.length !== layer.size)
      throw new Error(`the blob ${layer.digest} has another size`);
  }
  const [saved] = document('manifest.json');
  if (saved.Config !== `blobs/${manifest.config.digest.replace(':', '/')}`)
    throw new Error('manifest.json names another configuration');
  return { digest, manifest, config: blob(manifest.config.digest) };
}
