import { Option, type Command } from 'commander';
import { readFileSync } from 'node:fs';
import { Readable } from 'node:stream';
import { CLIENT_VARIABLES } from '../config/names.js';
import { ExplainedError } from '../lib/explained-error.js';
import { isOrgSlug, ORG_SLUG_RULE } from '../orgs/slug.js';
import { readLogin } from './stored-login.js';

const { url: URL_VARIABLE, key: KEY_VARIABLE } = CLIENT_VARIABLES;
const USUAL_URL = 'http://127.0.0.1:8080';

export interface ClientOptions {
  url?: string;
  keyFile?: string;
  /** The slug of an organization. */
  org?: string;
}

export interface Client {
  /** With the organization of `--org`, if there is one. */
  url: string;
  key: string;
}

interface Answer {
  status: number;
  text: string;
}

/** For commands that are clients of the API, and need no access to the data directory. */
export function withClientOptions(command: Command): Command {
  return withAddressOption(command)
    .addOption(
      new Option(
        '--key-file <path>',
        `a file with the API key (default: the key is in ${KEY_VARIABLE}, or "sandkeep login" has made one)`,
      ),
    )
    .addOption(
      new Option(
        '--org <slug>',
        'the organization, for a personal token of a person of several ones (default: that of the token)',
      ),
    );
}

export function withAddressOption(command: Command): Command {
  return command.addOption(
    new Option('--url <url>', `the address of the service (default: ${USUAL_URL}; env: ${URL_VARIABLE})`),
  );
}

/**
 * The address without a final slash, and the API key: from a file, the environment, or the stored login, whose token is
 * sent only to its own address. Throws ExplainedError.
 */
export function readClient(options: ClientOptions, env: NodeJS.ProcessEnv): Client {
  const { url, key } = readCredential(options, env);
  return { url: options.org === undefined ? url : inOrganization(url, options.org), key };
}

function inOrganization(url: string, slug: string): string {
  if (!isOrgSlug(slug)) throw new ExplainedError(`--org must be a slug: ${ORG_SLUG_RULE}`);
  if (/\/v1\/orgs\/[^/]+$/.test(url)) {
    throw new ExplainedError(`the address ${url} names an organization already: leave out --org`);
  }
  return `${url}/v1/orgs/${slug}`;
}

function readCredential(options: ClientOptions, env: NodeJS.ProcessEnv): Client {
  const { keyFile } = options;
  if (keyFile !== undefined) return { url: readAddress(options, env), key: readKeyFile(keyFile) };
  const key = env[KEY_VARIABLE]?.trim();
  if (key) return { url: readAddress(options, env), key };
  const login = readLogin(env);
  if (!login) {
    throw new ExplainedError(`no API key: set ${KEY_VARIABLE}, give --key-file, or run "sandkeep login"`);
  }
  const url = readAddress(options, env, login.url);
  if (url === login.url) return { url, key: login.token };
  throw new ExplainedError(
    `no API key for ${url}: the login is for ${login.url}; run "sandkeep login --url ${url}"`,
  );
}

/** The address of the service without a final slash. Throws ExplainedError. */
export function readAddress(
  { url }: Pick<ClientOptions, 'url'>,
  env: NodeJS.ProcessEnv,
  usual = USUAL_URL,
): string {
  const base = url ?? env[URL_VARIABLE] ?? usual;
  if (!/^https?:\/\//.test(base) || !URL.canParse(base)) {
    throw new ExplainedError(`"${base}" is no address of a service: give --url, such as ${USUAL_URL}`);
  }
  return base.replace(/\/+$/, '');
}

function readKeyFile(keyFile: string): string {
  try {
    return readFileSync(keyFile, 'utf8').trim();
  } catch (error) {
    throw new ExplainedError(`cannot read the API key: ${(error as Error).message}`);
  }
}

/** Sends a request, with a body as JSON. Throws ExplainedError when the service does not answer. */
export async function send(
  client: Client,
  path: string,
  { method = 'GET', body }: { method?: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'; body?: object } = {},
): Promise<Answer> {
  const headers: Record<string, string> = body ? { 'content-type': 'application/json' } : {};
  const answer = await request(client, path, {
    method,
    headers,
    ...(body && { body: JSON.stringify(body) }),
  });
  return { status: answer.status, text: await answer.text() };
}

/** An answer that is read as it arrives. Throws ExplainedError with the words of the service for a refusal. */
export async function open(
  client: Client,
  path: string,
  { headers }: { headers: Record<string, string> },
): Promise<Response> {
  const answer = await request(client, path, { headers });
  if (answer.status < 300) return answer;
  throw refusalOf({ status: answer.status, text: await answer.text() });
}

/** Sends a file, and returns the JSON of a success, as `sendForJson`. */
export async function uploadForJson<T>(client: Client, path: string, body: Readable): Promise<T> {
  const headers = { 'content-type': 'application/octet-stream' };
  const upload = { method: 'POST', headers, body: Readable.toWeb(body), duplex: 'half' };
  const answer = await request(client, path, upload as RequestInit);
  const text = await answer.text();
  if (answer.status >= 300) throw refusalOf({ status: answer.status, text });
  return readJson<T>(client, text);
}

/** Throws ExplainedError when the service does not answer. */
async function request({ url, key }: Client, path: string, init: RequestInit): Promise<Response> {
  const headers = { ...(init.headers as Record<string, string>), authorization: `Bearer ${key}` };
  return fetch(`${url}${path}`, { ...init, headers, redirect: 'manual' }).catch((error: Error) => {
    const { message } = (error.cause ?? error) as Error;
    throw new ExplainedError(
      `cannot reach the service at ${url}: ${message}; check --url or ${URL_VARIABLE}`,
    );
  });
}

/** The JSON of a success. Throws ExplainedError with the words of the service for every other answer. */
export async function sendForJson<T>(
  client: Client,
  path: string,
  request?: Parameters<typeof send>[2],
): Promise<T> {
  const answer = await send(client, path, request);
  if (answer.status >= 300) throw refusalOf(answer);
  return readJson<T>(client, answer.text);
}

function readJson<T>({ url }: Client, text: string): T {
  try {
    return JSON.parse(text) as T;
  } catch {
    throw new ExplainedError(`the answer of ${url} is no JSON: check --url or ${URL_VARIABLE}`);
  }
}

export function refusalOf({ status, text }: Answer): ExplainedError {
  if (status === 401) {
    return new ExplainedError(
      `the service refuses the API key: check ${KEY_VARIABLE} or --key-file, or run "sandkeep login" again`,
    );
  }
  return new ExplainedError(messageOf(text) || `the service answered with ${status}`);
}

/** The words of an error of the API. Empty: it has none. */
export function messageOf(body: string): string {
  try {
    const { error } = JSON.parse(body) as { error?: { message?: unknown } };
    return typeof error?.message === 'string' ? error.message : '';
  } catch {
    return '';
  }
}
