import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { writeFileAtomicallySync } from '../lib/atomic-file.js';
import { ExplainedError } from '../lib/explained-error.js';

interface StoredLogin {
  /** The address of the service: the token is sent nowhere else. */
  url: string;
  token: string;
  token_id: string;
}

/** The file of `sandkeep login`, which only its owner can read. */
function loginFile(env: NodeJS.ProcessEnv): string {
  const base = env['XDG_CONFIG_HOME'] || join(env['HOME'] || homedir(), '.config');
  return join(base, 'sandkeep', 'login.json');
}

/** Undefined without a login. Throws ExplainedError for a file that it cannot read. */
export function readLogin(env: NodeJS.ProcessEnv): StoredLogin | undefined {
  const file = loginFile(env);
  try {
    const login: unknown = JSON.parse(readFileSync(file, 'utf8'));
    if (isLogin(login)) return login;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
  }
  throw new ExplainedError(
    `cannot read the login in ${file}: remove the file, and run "sandkeep login" again`,
  );
}

function isLogin(value: unknown): value is StoredLogin {
  const { url, token, token_id } = (value ?? {}) as Partial<Record<keyof StoredLogin, unknown>>;
  return [url, token, token_id].every((field) => typeof field === 'string');
}

export function writeLogin(env: NodeJS.ProcessEnv, login: StoredLogin): void {
  const file = loginFile(env);
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  writeFileAtomicallySync(file, `${JSON.stringify(login)}\n`, { replace: true });
}

export function removeLogin(env: NodeJS.ProcessEnv): void {
  rmSync(loginFile(env), { force: true });
}
