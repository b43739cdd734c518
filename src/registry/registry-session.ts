import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import {
  DestinationRefused,
  findDestination,
  isHttpAllowed,
  NameNotResolved,
  type DestinationPolicy,
} from '../outbound/destination.js';
import type { Resolve } from '../outbound/resolve.js';
import { send } from '../outbound/send.js';
import { parseChallenge } from './challenge.js';
import { HEADERS_TIMEOUT_MS, IDLE_TIMEOUT_MS, MAX_REDIRECTS, MAX_TOKEN_BYTES } from './limits.js';
import { PullError, type PullFailure } from './pull-error.js';
import { parseJson } from '../lib/json.js';

/** For one pull. Never stored, logged or shown. */
export interface RegistryAuth {
  username: string;
  password: string;
}

export interface RegistryReach {
  policy: DestinationPolicy;
  resolve: Resolve;
}

export interface Answer {
  headers: IncomingHttpHeaders;
  body: AsyncIterable<Buffer>;
}

const HUB_HOST = 'registry-1.docker.io';
const REDIRECTS = new Set([301, 302, 303, 307, 308]);

/**
 * The requests of one pull to one repository. Each address is checked, those of redirects and realms too. Every method
 * throws PullError, or the reason of the signal.
 */
export class RegistrySession {
  private authorization: string | undefined;
  private origin: Promise<string> | undefined;

  constructor(
    private readonly reach: RegistryReach,
    /** Without a repository it can only log in. */
    private readonly image: { registry: string; repository?: string | undefined },
    private readonly auth: RegistryAuth | undefined,
    private readonly signal: AbortSignal,
  ) {}

  async request(path: string, method: 'GET' | 'HEAD' = 'GET', accept = '*/*'): Promise<Answer> {
    return this.ask(`${this.image.repository}/${path}`, method, accept);
  }

  /** Asks for nothing but the registry itself, with the login if it demands one. */
  async logIn(): Promise<void> {
    const { body } = await this.ask('', 'GET', '*/*');
    await readAll(body, MAX_TOKEN_BYTES);
    if (this.auth && this.authorization === undefined)
      throw new PullError('no_login', `${this.image.registry} demands no login`);
  }

  private async ask(path: string, method: 'GET' | 'HEAD', accept: string): Promise<Answer> {
    this.origin ??= this.findOrigin();
    const url = new URL(`${await this.origin}/v2/${path}`);
    const get = () => this.follow(url, method, accept, this.authorization);
    let { response, end } = await get();
    // The target of a redirect gets no login, and names no realm for one.
    if (response.statusCode === 401 && end.origin === url.origin) {
      response.destroy();
      this.authorization = await this.authorize(url, response.headers['www-authenticate']);
      ({ response, end } = await get());
    }
    return this.accept(response, end);
  }

  private async findOrigin(): Promise<string> {
    const { registry } = this.image;
    const host = registry === 'docker.io' ? HUB_HOST : registry;
    const url = parseUrl(`https://${host}`);
    const { addresses } = await this.findDestination(url);
    return isHttpAllowed(addresses, this.reach.policy) ? `http://${host}` : `https://${host}`;
  }

  private async authorize(url: URL, header: string | undefined): Promise<string> {
    const challenge = parseChallenge(header);
    const basic = this.auth && basicOf(this.auth);
    if (challenge?.scheme === 'bearer')
      return this.fetchToken(parseUrl(challenge.realm, url), challenge.service, basic);
    if (challenge === undefined || basic === undefined)
      throw new PullError('denied', `${url.host} answered 401`);
    return basic;
  }

  private async fetchToken(
    realm: URL,
    service: string | undefined,
    basic: string | undefined,
  ): Promise<string> {
    if (service !== undefined) realm.searchParams.set('service', service);
    // Not the scope that the registry asks for: it could name another repository of the user.
    const { repository } = this.image;
    if (repository !== undefined) realm.searchParams.set('scope', `repository:${repository}:pull`);
    const { response } = await this.follow(realm, 'GET', 'application/json', basic);
    if (response.statusCode === 400) throw new PullError('denied', `the realm ${realm.host} answered 400`);
    const { body } = await this.accept(response, realm);
    const text = (await readAll(body, MAX_TOKEN_BYTES)).toString();
    const { token, access_token } = (parseJson(text) ?? {}) as { token?: unknown; access_token?: unknown };
    const found = token ?? access_token;
    if (typeof found !== 'string' || !/^[\x21-\x7e]+$/.test(found)) {
      throw new PullError('broken', `the realm ${realm.host} gave no token`);
    }
    return `Bearer ${found}`;
  }

  private async accept(response: IncomingMessage, url: URL): Promise<Answer> {
    if (response.statusCode === 200) return { headers: response.headers, body: this.read(response) };
    response.destroy();
    const failure = FAILURE_OF_STATUS[response.statusCode!] ?? 'broken';
    throw new PullError(failure, `${url.host} answered ${response.statusCode}`);
  }

  private async follow(
    url: URL,
    method: 'GET' | 'HEAD',
    accept: string,
    authorization: string | undefined,
    redirects = 0,
  ): Promise<{ response: IncomingMessage; end: URL }> {
    const headers = { accept, ...(authorization === undefined ? {} : { authorization }) };
    const response = await this.send(url, method, headers);
    if (!REDIRECTS.has(response.statusCode!)) return { response, end: url };
    response.destroy();
    if (redirects === MAX_REDIRECTS) throw new PullError('broken', `${url.host} redirects too often`);
    const next = parseUrl(response.headers.location ?? '', url);
    return this.follow(
      next,
      method,
      accept,
      next.origin === url.origin ? authorization : undefined,
      redirects + 1,
    );
  }

  private async send(
    url: URL,
    method: 'GET' | 'HEAD',
    headers: Record<string, string>,
  ): Promise<IncomingMessage> {
    const over = this.linkedController();
    const timer = setTimeout(
      () =>
        over.abort(
          new PullError('unreachable', `no answer of ${url.host} within ${HEADERS_TIMEOUT_MS / 1_000} s`),
        ),
      HEADERS_TIMEOUT_MS,
    );
    try {
      const destination = await this.findDestination(url, over.signal);
      const response = await send(url, destination, { method, headers, signal: over.signal });
      response.once('close', () => over.unlink());
      return response;
    } catch (error) {
      over.unlink();
      throw over.signal.aborted ? over.signal.reason : pullErrorOf(error, url);
    } finally {
      clearTimeout(timer);
    }
  }

  private async findDestination(url: URL, signal = this.signal) {
    const found = findDestination(url, this.reach.policy, this.reach.resolve);
    found.catch(() => undefined);
    // A query to a silent name server cannot be interrupted, so the race abandons it.
    return Promise.race([found, rejection(signal)]).catch((error: unknown) => {
      throw pullErrorOf(error, url);
    });
  }

  /** Not AbortSignal.any: on Node 20 the garbage collector can drop it. */
  private linkedController() {
    const controller = new AbortController();
    const stop = () => controller.abort(this.signal.reason);
    if (this.signal.aborted) stop();
    this.signal.addEventListener('abort', stop, { once: true });
    return Object.assign(controller, { unlink: () => this.signal.removeEventListener('abort', stop) });
  }

  private async *read(response: IncomingMessage): AsyncGenerator<Buffer> {
    const chunks = response[Symbol.asyncIterator]() as AsyncIterator<Buffer, undefined>;
    const stalled = new PullError('too_slow', `silent for ${IDLE_TIMEOUT_MS / 1_000} s`);
    try {
      for (;;) {
        // Only while it waits for the registry: the engine may be slow as well.
        const timer = setTimeout(() => response.destroy(stalled), IDLE_TIMEOUT_MS);
        const next = await chunks.next().finally(() => clearTimeout(timer));
        if (next.done) break;
        yield next.value;
      }
      if (!response.complete) throw new Error('the connection ended early');
    } catch (error) {
      this.signal.throwIfAborted();
      throw error instanceof PullError
        ? error
        : new PullError('unreachable', 'the connection broke', { cause: error });
    } finally {
      response.destroy();
    }
  }
}

const FAILURE_OF_STATUS: Record<number, PullFailure> = {
  401: 'denied',
  403: 'denied',
  404: 'not_found',
  429: 'rate_limited',
};

function basicOf({ username, password }: RegistryAuth): string {
  return `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;
}

function parseUrl(text: string, base?: URL): URL {
  try {
    const url = new URL(text, base);
    url.hash = '';
    return url;
  } catch (cause) {
    throw new PullError('broken', 'the registry names an invalid address', { cause });
  }
}

export async function readAll(body: AsyncIterable<Buffer>, limit: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of body) {
    chunks.push(chunk);
    length += chunk.length;
    if (length > limit) throw new PullError('broken', `an answer has more than ${limit} bytes`);
  }
  return Buffer.concat(chunks);
}

async function rejection(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    const stop = () => reject(signal.reason as Error);
    if (signal.aborted) stop();
    signal.addEventListener('abort', stop, { once: true });
  });
}

function pullErrorOf(cause: unknown, { host }: URL): unknown {
  if (cause instanceof PullError) return cause;
  return new PullError(failureOf(cause), `the request to ${host} failed`, { cause });
}

function failureOf(cause: unknown): PullFailure {
  if (cause instanceof DestinationRefused) return 'refused';
  if (cause instanceof NameNotResolved) return 'unreachable';
  const { code = '' } = cause as NodeJS.ErrnoException;
  if (/CERT|UNABLE_TO|ERR_TLS|ERR_SSL|EPROTO/.test(code)) return 'untrusted';
  return code.startsWith('HPE_') ? 'broken' : 'unreachable';
}
