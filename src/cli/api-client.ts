import { Option, type Command } from 'commander';
import { readFileSync } from 'node:fs';
import { ExplainedError } from '../lib/explained-error.js';

export const URL_VARIABLE = 'SANDKEEP_URL';
export const KEY_VARIABLE = 'SANDKEEP_API_KEY';
const USUAL_URL = 'http://127.0.0.1:8080';

interface ClientOptions {
  url?: string;
  keyFile?: string;
}

/** For commands that are clients of the API, and need no access to the data directory. */
export function withClientOptions(command: Command): Command {
  return command
    .addOption(
      new Option('--url <url>', `the address of the service (default: ${USUAL_URL}; env: ${URL_VARIABLE})`),
    )
    .addOption(
      new Option('--key-file <path>', `a file with the API key (default: the key is in ${KEY_VARIABLE})`),
    );
}

/** The address without a final slash, and the API key. Throws ExplainedError. */
export function readClient(
  { url, keyFile }: ClientOptions,
  env: NodeJS.ProcessEnv,
): { url: string; key: string } {
  const base = url ?? env[URL_VARIABLE] ?? USUAL_URL;
  if (!/^https?:\/\//.test(base) || !URL.canParse(base)) {
    throw new ExplainedError(`"${base}" is no address of a service: give --url, such as ${USUAL_URL}`);
  }
  return { url: base.replace(/\/+$/, ''), key: readKey(keyFile, env) };
}

function readKey(keyFile: string | undefined, env: NodeJS.ProcessEnv): string {
  if (keyFile === undefined) {
    const key = env[KEY_VARIABLE]?.trim();
    if (!key) throw new ExplainedError(`no API key: set ${KEY_VARIABLE}, or give --key-file`);
    return key;
  }
  try {
    return readFileSync(keyFile, 'utf8').trim();
  } catch (error) {
    throw new ExplainedError(`cannot read the API key: ${(error as Error).message}`);
  }
}
