import { fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import type { ProviderSettings } from '../../../src/config/provider-settings.js';
import { PACKAGE_ROOT } from '../../../src/lib/package-root.js';
import { startTestService, type TestOptions, type TestService } from '../service.js';

const PROGRAM = join(PACKAGE_ROOT, 'test/support/openid/provider-process.mjs');
const SECRET = 'a secret of the client at the provider';

/** The settings of a provider on this machine. The URL of the service is known when it has started. */
export function localProvider(issuer: string, more: Partial<ProviderSettings> = {}): ProviderSettings {
  return {
    issuer,
    clientId: 'sandkeep',
    clientSecret: SECRET,
    name: 'the test provider',
    scopes: 'openid email profile',
    domains: [],
    required: {},
    groupsClaim: 'groups',
    groupRules: [],
    trustEmail: false,
    consoleUrl: 'http://127.0.0.1/console',
    reach: { allow: ['127.0.0.1'], http: true },
    resolve: () => Promise.reject(new Error('tests ask no name server')),
    timeoutMs: 10_000,
    ...more,
  };
}

/** A service whose settings name the provider. */
export async function startServiceWith(
  provider: ProviderSettings,
  options: TestOptions = {},
): Promise<TestService> {
  const service = await startTestService({ ...options, settings: { ...options.settings, provider } });
  provider.consoleUrl = `${service.url}/console`;
  return service;
}

export interface TestProvider {
  settings: ProviderSettings;
  /** Registers the service as a client. */
  register(): Promise<void>;
  /** Makes an account, or changes its claims. */
  setAccount(account: string, claims: Record<string, unknown>): Promise<void>;
  close(): Promise<void>;
}

/** A certified provider in a process of its own. `inIdToken`: claims are in the ID token, and not in userinfo alone. */
export async function startProvider(
  more: Partial<ProviderSettings> = {},
  { inIdToken = false } = {},
): Promise<TestProvider> {
  const child = fork(PROGRAM, inIdToken ? ['claims-in-id-token'] : [], {
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
  });
  let errors = '';
  child.stderr!.on('data', (chunk: Buffer) => (errors += chunk.toString()));
  const ended = once(child, 'exit').then(() => {
    throw new Error(`the provider has ended: ${errors}`);
  });
  ended.catch(() => undefined);
  const answer = async (message?: object): Promise<Record<string, string>> => {
    const leave = new AbortController();
    const answered = once(child, 'message', { signal: leave.signal });
    if (message) child.send(message);
    try {
      const [value] = (await Promise.race([answered, ended])) as [Record<string, string>];
      return value;
    } finally {
      answered.catch(() => undefined);
      leave.abort();
    }
  };
  const { issuer } = await answer();
  const settings = localProvider(issuer!, more);
  return {
    settings,
    async register() {
      await answer({ consoleUrl: settings.consoleUrl, secret: SECRET });
    },
    async setAccount(account, claims) {
      await answer({ account, claims });
    },
    async close() {
      if (child.exitCode !== null) return;
      child.kill();
      await ended.catch(() => undefined);
    },
  };
}
