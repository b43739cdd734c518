import type { Command } from 'commander';
import { hostname } from 'node:os';
import { escapeControlsInLines } from '../lib/escape-controls.js';
import { ExplainedError } from '../lib/explained-error.js';
import { sleep } from '../lib/sleep.js';
import { readAddress, sendForJson, withAddressOption, type ClientOptions } from './api-client.js';
import { print } from './command.js';
import { common, OperatorCommand } from './operator-command.js';
import { json } from './options.js';
import { writeLogin } from './stored-login.js';

const GRANT_TYPE = 'urn:ietf:params:oauth:grant-type:device_code';
const LONGEST_ANSWER_MS = 30_000;
/** RFC 8628, section 3.5. */
const SLOWER_SECS = 5;

interface DeviceAnswer {
  device_code: string;
  user_code: string;
  verification_uri_complete: string;
  expires_in: number;
  interval: number;
}

interface TokenAnswer {
  access_token: string;
  token_id: string;
  expires_at: string;
}

/** Signs in as a member, who confirms a code in the console (RFC 8628). */
export function loginCommand(env: NodeJS.ProcessEnv): Command {
  return withAddressOption(new OperatorCommand('login'))
    .description('sign in as yourself: commands that are clients of the API then use a personal token')
    .addOption(common(json()))
    .action(async (options: Pick<ClientOptions, 'url'> & { json?: true }) => {
      const url = readAddress(options, env);
      const device = await begin(url);
      const { verification_uri_complete: page, user_code } = device;
      const told = `Open ${page}\nand confirm the code ${user_code}, if the page shows the same.\n`;
      process.stderr.write(escapeControlsInLines(told));
      const { access_token: token, token_id, expires_at } = await poll(url, device);
      writeLogin(env, { url, token, token_id });
      const org = await sendForJson<{ slug: string; role: string }>({ url, key: token }, '/v1/me/org');
      const shown = { url, organization: org.slug, role: org.role, token_id, expires_at };
      print(options, shown, `signed in to the organization "${org.slug}" (${org.role}), until ${expires_at}`);
    });
}

async function begin(url: string): Promise<DeviceAnswer> {
  const { status, body } = await post(url, 'authorization', { client_name: `sandkeep on ${hostname()}` });
  if (status === 200 && isDevice(body)) return body;
  if (status === 404) throw new ExplainedError(`the service at ${url} has no console: use a key instead`);
  throw new ExplainedError(`the service at ${url} does not begin a sign-in: it answered with ${status}`);
}

async function poll(url: string, device: DeviceAnswer): Promise<TokenAnswer> {
  const end = performance.now() + device.expires_in * 1_000;
  let secs = device.interval;
  while (performance.now() < end) {
    await sleep(secs * 1_000);
    const form = { grant_type: GRANT_TYPE, device_code: device.device_code };
    const { status, body } = await post(url, 'token', form);
    if (status === 200 && isToken(body)) return body;
    const { error } = (body ?? {}) as { error?: unknown };
    if (error === 'access_denied') throw new ExplainedError('the sign-in was refused in the console');
    if (error === 'expired_token') break;
    // Another answer, such as "too many requests", is worth another try.
    if (error !== 'authorization_pending') secs += SLOWER_SECS;
  }
  throw new ExplainedError('nobody confirmed the code in time: run "sandkeep login" again');
}

async function post(
  url: string,
  path: 'authorization' | 'token',
  form: Record<string, string>,
): Promise<{ status: number; body: unknown }> {
  try {
    const answer = await fetch(`${url}/console/device/${path}`, {
      method: 'POST',
      body: new URLSearchParams(form),
      redirect: 'manual',
      signal: AbortSignal.timeout(LONGEST_ANSWER_MS),
    });
    const text = await answer.text();
    return { status: answer.status, body: isJson(answer) ? JSON.parse(text) : {} };
  } catch (error) {
    const { message } = ((error as Error).cause ?? error) as Error;
    throw new ExplainedError(`cannot reach the service at ${url}: ${message}; check --url`, { cause: error });
  }
}

function isDevice(body: unknown): body is DeviceAnswer {
  const { device_code, user_code, verification_uri_complete, expires_in, interval } = (body ?? {}) as Partial<
    Record<keyof DeviceAnswer, unknown>
  >;
  return (
    [device_code, user_code, verification_uri_complete].every((field) => typeof field === 'string') &&
    [expires_in, interval].every((field) => typeof field === 'number' && field > 0)
  );
}

function isToken(body: unknown): body is TokenAnswer {
  const { access_token, token_id, expires_at } = (body ?? {}) as Partial<Record<keyof TokenAnswer, unknown>>;
  return [access_token, token_id, expires_at].every((field) => typeof field === 'string');
}

function isJson({ headers }: Response): boolean {
  return headers.get('content-type')?.startsWith('application/json') === true;
}
