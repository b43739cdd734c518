import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { Address } from '../../src/db/pool.js';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';

export interface Ended {
  code: number | null;
  out: string;
  err: string;
}

export interface RunOptions {
  env?: Record<string, string>;
  input?: string;
  cwd?: string;
}

/** The built program. */
export const PROGRAM = [process.execPath, join(PACKAGE_ROOT, 'bin', 'sandkeep')];
export const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
export const NO_DOCKER = ['--docker-socket', '/nonexistent/docker.sock'];

export function urlOf(address: Address): string {
  if (!('url' in address)) throw new Error('a database of a test is reached by a URL');
  return address.url;
}

/** Starts a command without the configuration of this process. */
export function start(command: readonly string[], { env = {}, input, cwd = '/' }: RunOptions = {}) {
  const [program, ...args] = command;
  const { PATH = '', HOME = '' } = process.env;
  const child = spawn(program!, args, { env: { PATH, HOME, ...env }, cwd });
  let [out, err] = ['', ''];
  child.stdout.on('data', (chunk: Buffer) => (out += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (err += chunk.toString()));
  child.stdin.on('error', () => undefined);
  child.stdin.end(input);
  const ended = new Promise<Ended>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => resolve({ code, out, err }));
  });
  return { child, ended, out: () => out };
}

export function run(args: readonly string[], options?: RunOptions): Promise<Ended> {
  return start([...PROGRAM, ...args], options).ended;
}

/** Runs a command with --json that must succeed. Returns the parsed output. */
export async function runJson(args: readonly string[], options?: RunOptions): Promise<any> {
  const { code, out, err } = await run([...args, '--json'], options);
  expect({ code, err }, out).toEqual({ code: 0, err: '' });
  expect(out).toMatch(/^[^\n]+\n$/);
  return JSON.parse(out);
}

/** The steps of "sandkeep serve" until one of them fails. */
const STEPS = /^(Sandkeep \S+ is starting\n( {2}[^\n]+\n)*)?$/;

/** Expects one sentence on standard error that names the fault, and no stack. */
export function expectRefused({ code, out, err }: Ended, sentence: string | RegExp): void {
  expect(out).toMatch(STEPS);
  expect(code).toBe(1);
  expect(err.replace('\n(--help says more)', '')).toMatch(/^(sandkeep|error): [^\n]+\n$/);
  if (typeof sentence === 'string') expect(err).toContain(sentence);
  else expect(err).toMatch(sentence);
}

export async function expectReachable(address: string, key: string, status = 200): Promise<void> {
  const response = await fetch(`${address}/v1/sandboxes`, { headers: { authorization: `Bearer ${key}` } });
  expect(response.status).toBe(status);
  await response.arrayBuffer();
}
