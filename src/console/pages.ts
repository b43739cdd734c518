import fastifyStatic from '@fastify/static';
import type { FastifyReply } from 'fastify';
import { hash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Logger } from 'pino';
import { ApiError } from '../http/errors.js';
import type { App } from '../http/route.js';
import type { Settings } from '../settings.js';

const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "font-src 'self'",
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
].join('; ');
const UNUSED_FEATURES = ['camera', 'display-capture', 'geolocation', 'microphone', 'payment', 'usb'];
/** Beside the headers of every answer: `x-frame-options`, `referrer-policy` and others. */
const HEADERS = {
  'content-security-policy': POLICY,
  'cross-origin-opener-policy': 'same-origin',
  'permissions-policy': UNUSED_FEATURES.map((feature) => `${feature}=()`).join(', '),
};
const PAGE = 'index.html';
const REVALIDATED = 'no-cache';
/** Their names have hashes of their contents. */
const IMMUTABLE = 'public, max-age=31536000, immutable';
const NOT_BUILT = `<!doctype html>
<html lang="en">
<title>Sandkeep</title>
<h1>The console is not built</h1>
<p>Run <code>npm run build</code> in the directory of Sandkeep, then start the service again.</p>
`;

/** The files of the console. Every other path below `/console` is a page of it, which the browser renders. */
export async function consolePages(
  app: App,
  { consoleDir: directory, basePath = '' }: Pick<Settings, 'consoleDir' | 'basePath'>,
  log: Logger,
): Promise<void> {
  const files = filesOf(directory);
  const page = files.has(PAGE) ? pageBelow(basePath, readFileSync(join(directory, PAGE), 'utf8')) : undefined;
  if (page === undefined) log.warn({ directory }, 'the console is not built: run "npm run build"');
  await app.register(fastifyStatic, {
    root: directory,
    serve: false,
    preCompressed: true,
    cacheControl: false,
    dotfiles: 'deny',
  });

  app.get('/console', { schema: { hide: true } }, (_request, reply) => send(reply, PAGE));
  app.get<{ Params: { '*': string } }>('/console/*', { schema: { hide: true } }, (request, reply) => {
    const { '*': path } = request.params;
    if (files.has(path)) return send(reply, path);
    if (path.startsWith('assets/')) throw new ApiError('route_not_found');
    return send(reply, PAGE);
  });

  const etag = `"${hash('sha256', page ?? '', 'base64url')}"`;
  function send(reply: FastifyReply, file: string): FastifyReply {
    void reply.headers(HEADERS).header('vary', 'accept-encoding');
    void reply.header('cache-control', file.startsWith('assets/') ? IMMUTABLE : REVALIDATED);
    if (file !== PAGE) return reply.sendFile(file);
    if (page !== undefined) return sendPage(reply, page);
    return reply.code(503).type('text/html; charset=utf-8').send(NOT_BUILT);
  }

  function sendPage(reply: FastifyReply, text: string): FastifyReply {
    void reply.type('text/html; charset=utf-8').header('etag', etag);
    return reply.request.headers['if-none-match'] === etag ? reply.code(304).send() : reply.send(text);
  }
}

/** Below a longer path of the console, relative addresses of files would lead elsewhere. */
function pageBelow(basePath: string, page: string): string {
  return page
    .replace('name="base-path" content=""', `name="base-path" content="${basePath}"`)
    .replaceAll('"./', `"${basePath}/console/`);
}

/** Only these names reach the file system. Compressed copies are served under the name of the file. */
function filesOf(directory: string): Set<string> {
  if (!existsSync(directory)) return new Set();
  const names = readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => `${entry.parentPath}/${entry.name}`.slice(directory.length + 1));
  return new Set(names.filter((name) => !/\.(br|gz)$/.test(name)));
}
