import { createHash } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { pipeline } from 'node:stream/promises';
import { gzipSync } from 'node:zlib';
import tar from 'tar-stream';
import { docker } from './docker.js';

export interface PrivateRegistry {
  /** The host in the names of its images: `<host>/<name>`. */
  host: string;
  /** The login attempts as the engine sent them. */
  logins: string[];
  close(): Promise<void>;
}

const digestOf = (bytes: Buffer) => `sha256:${createHash('sha256').update(bytes).digest('hex')}`;

/**
 * A registry that serves one image, under any name, to `username` with `password` (OCI distribution, pull only). It
 * listens on loopback, where engines do not require TLS.
 */
export async function servePrivateRegistry(
  image: string,
  { username, password }: { username: string; password: string },
): Promise<PrivateRegistry> {
  const files = await saved(image);
  const [{ Config, Layers }] = JSON.parse(files.get('manifest.json')!.toString()) as [
    { Config: string; Layers: string[] },
  ];
  const blobs = new Map<string, Buffer>();
  const keep = (bytes: Buffer, mediaType: string) => {
    blobs.set(digestOf(bytes), bytes);
    return { mediaType, size: bytes.length, digest: digestOf(bytes) };
  };
  const manifest = Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: MANIFEST,
      config: keep(files.get(Config)!, 'application/vnd.docker.container.image.v1+json'),
      layers: Layers.map((name) =>
        keep(gzipSync(files.get(name)!), 'application/vnd.docker.image.rootfs.diff.tar.gzip'),
      ),
    }),
  );

  const logins: string[] = [];
  const expected = `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;
  const server = createServer((request, response) => {
    const { authorization } = request.headers;
    if (authorization !== undefined) logins.push(authorization);
    if (authorization !== expected) {
      response.writeHead(401, { 'www-authenticate': 'Basic realm="test"' }).end('{}');
      return;
    }
    const digest = /\/blobs\/(sha256:[0-9a-f]+)$/.exec(request.url!)?.[1];
    const blob = digest === undefined ? undefined : blobs.get(digest);
    if (/\/manifests\//.test(request.url!)) {
      const headers = { 'content-type': MANIFEST, 'docker-content-digest': digestOf(manifest) };
      response.writeHead(200, { ...headers, 'content-length': manifest.length });
      response.end(request.method === 'HEAD' ? undefined : manifest);
    } else if (blob) response.writeHead(200, { 'content-length': blob.length }).end(blob);
    else response.writeHead(request.url === '/v2/' ? 200 : 404).end('{}');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    host: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    logins,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

const MANIFEST = 'application/vnd.docker.distribution.manifest.v2+json';

/** The files of `docker save`. */
async function saved(image: string): Promise<Map<string, Buffer>> {
  const files = new Map<string, Buffer>();
  const extract = tar.extract();
  extract.on('entry', ({ name }, entry, next) => {
    const pieces: Buffer[] = [];
    entry.on('data', (piece: Buffer) => pieces.push(piece));
    entry.on('end', () => next(void files.set(name, Buffer.concat(pieces))));
  });
  await pipeline(await docker.getImage(image).get(), extract);
  return files;
}
