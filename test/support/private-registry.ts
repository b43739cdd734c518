import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { pipeline } from 'node:stream/promises';
import { gzipSync } from 'node:zlib';
import tar, { type Headers } from 'tar-stream';
import { docker } from './docker.js';

interface Credentials {
  username: string;
  password: string;
}

/** An image as a registry has it. */
export interface RemoteImage {
  manifest: Buffer;
  digest: string;
  /** The id that the engine gives to the image. */
  config: string;
  blobs: Map<string, Buffer>;
}

export interface RegistryOptions {
  /** Without: nobody needs any. */
  credentials?: Credentials;
  /** How the registry asks for them. Default: basic. */
  scheme?: 'basic' | 'bearer';
  /** Returns true when it has answered. */
  intercept?: (request: IncomingMessage, response: ServerResponse) => boolean | void;
}

export interface PrivateRegistry {
  /** The host in the names of its images: `<host>/<name>`. */
  host: string;
  port: number;
  /** The header of each login attempt. */
  logins: string[];
  /** `GET /v2/…` of each request. */
  requests: string[];
  /** The names on the engine of the images that were pulled from here. `close` removes them. */
  pulled(): Promise<string[]>;
  /** Serves another image. */
  image: RemoteImage;
  credentials: Credentials | undefined;
  intercept: NonNullable<RegistryOptions['intercept']>;
  close(): Promise<void>;
}

const TOKEN = 'a-token-of-the-realm';
const MANIFEST = 'application/vnd.docker.distribution.manifest.v2+json';

export const digestOf = (bytes: Buffer) => `sha256:${createHash('sha256').update(bytes).digest('hex')}`;

/**
 * A registry that serves one image under any name (OCI distribution, pull only), by http on a loopback address. Its
 * realm is at `/token`.
 */
export async function serveRegistry(
  image: RemoteImage,
  { credentials, scheme = 'basic', intercept = () => false }: RegistryOptions = {},
): Promise<PrivateRegistry> {
  const answer = (request: IncomingMessage, response: ServerResponse) => {
    const { authorization } = request.headers;
    registry.requests.push(`${request.method} ${request.url}`);
    if (authorization !== undefined) registry.logins.push(authorization);
    if (registry.intercept(request, response) === true) return;
    const isBasic = authorization === basicOf(registry.credentials);
    if (request.url!.startsWith('/token')) {
      response.writeHead(isBasic ? 200 : 401).end(JSON.stringify(isBasic ? { token: TOKEN } : {}));
      return;
    }
    const isOpen = registry.credentials === undefined;
    if (!isOpen && !(scheme === 'basic' ? isBasic : authorization === `Bearer ${TOKEN}`)) {
      const realm = `Bearer realm="http://${registry.host}/token",service="test",scope="x"`;
      const challenge = scheme === 'basic' ? 'Basic realm="test"' : realm;
      response.writeHead(401, { 'www-authenticate': challenge }).end('{}');
      return;
    }
    const { manifest, digest, blobs } = registry.image;
    const asked = /\/(manifests|blobs)\/([^/]+)$/.exec(request.url!);
    const found =
      asked?.[1] === 'manifests' && [digest, '1', 'latest'].includes(asked[2]!)
        ? manifest
        : blobs.get(asked?.[2] ?? '');
    const repository = /^\/v2\/(.*)\/manifests\//.exec(request.url!)?.[1];
    if (repository !== undefined) served.add(`${repository}@${digest}`);
    if (!found) response.writeHead(404).end('{"errors":[{"message":"a text of the registry"}]}');
    else {
      const headers = { 'content-type': MANIFEST, 'docker-content-digest': digestOf(found) };
      response.writeHead(200, { ...headers, 'content-length': found.length });
      response.end(request.method === 'HEAD' ? undefined : found);
    }
  };
  const served = new Set<string>();
  const server = createServer(answer);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const registry: PrivateRegistry = {
    host: `127.0.0.1:${port}`,
    port,
    logins: [],
    requests: [],
    image,
    credentials,
    intercept,
    async pulled() {
      const names = [...served].map((each) => {
        const hash = createHash('sha256').update(`${registry.host}/${each}`).digest('hex');
        return `sandkeep/pulled:${hash}`;
      });
      const found = await Promise.all(
        names.map((name) =>
          docker
            .getImage(name)
            .inspect()
            .catch(() => undefined),
        ),
      );
      return names.filter((_, index) => found[index] !== undefined);
    },
    async close() {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      server.closeAllConnections();
      await closed;
      for (const name of await registry.pulled()) await docker.getImage(name).remove({ force: true });
    },
  };
  return registry;
}

function basicOf(credentials: Credentials | undefined): string {
  return `Basic ${Buffer.from(`${credentials?.username}:${credentials?.password}`).toString('base64')}`;
}

/** An image of the engine. */
export async function remoteImageOf(name: string): Promise<RemoteImage> {
  const files = await saved(name);
  const [{ Config, Layers }] = JSON.parse(files.get('manifest.json')!.toString()) as [
    { Config: string; Layers: string[] },
  ];
  return remoteImage(
    files.get(Config)!,
    Layers.map((layer) => gzipSync(files.get(layer)!)),
  );
}

export function remoteImage(config: Buffer, layers: Buffer[]): RemoteImage {
  const blobs = new Map<string, Buffer>();
  const keep = (bytes: Buffer, mediaType: string) => {
    blobs.set(digestOf(bytes), bytes);
    return { mediaType, size: bytes.length, digest: digestOf(bytes) };
  };
  const manifest = Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: MANIFEST,
      config: keep(config, 'application/vnd.docker.container.image.v1+json'),
      layers: layers.map((layer) => keep(layer, 'application/vnd.docker.image.rootfs.diff.tar.gzip')),
    }),
  );
  return { manifest, digest: digestOf(manifest), config: digestOf(config), blobs };
}

/** The configuration of an image with these uncompressed layers. `more`: other fields. */
export function configOf(layers: Buffer[], more: Record<string, unknown> = {}): Buffer {
  const architecture = process.arch === 'arm64' ? 'arm64' : 'amd64';
  const rootfs = { type: 'layers', diff_ids: layers.map(digestOf) };
  return Buffer.from(JSON.stringify({ os: 'linux', architecture, config: {}, rootfs, ...more }));
}

/** An uncompressed layer with these files. */
export async function layerOf(
  files: Record<string, string>,
  more: (Headers & { pax?: Record<string, string> })[] = [],
): Promise<Buffer> {
  const archive = tar.pack();
  for (const [name, content] of Object.entries(files)) archive.entry({ name }, content);
  for (const header of more) archive.entry(header, '');
  archive.finalize();
  const pieces: Buffer[] = [];
  for await (const piece of archive) pieces.push(piece as Buffer);
  return Buffer.concat(pieces);
}

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
