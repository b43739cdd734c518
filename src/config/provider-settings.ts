import { readFileSync } from 'node:fs';
import { ExplainedError } from '../lib/explained-error.js';
import { parsePairs } from '../lib/pairs.js';
import type { DestinationPolicy } from '../outbound/destination.js';
import { resolveBySystem, type Resolve } from '../outbound/resolve.js';
import type { Config } from './options.js';
import { GROUP_ROLES, type SIGN_IN_OPTIONS } from './sign-in-options.js';

export interface GroupRule {
  group: string;
  /** The slug of the organization. */
  org: string;
  role: (typeof GROUP_ROLES)[number];
}

/** The OpenID provider that people sign in with. */
export interface ProviderSettings {
  issuer: string;
  clientId: string;
  /** Undefined: a public client, which only PKCE protects. */
  clientSecret: string | undefined;
  name: string;
  scopes: string;
  /** Empty: every domain. */
  domains: readonly string[];
  required: Readonly<Record<string, string>>;
  groupsClaim: string;
  groupRules: readonly GroupRule[];
  trustEmail: boolean;
  /** The URL of the console for browsers, such as `https://sandkeep.example.com/console`. */
  consoleUrl: string;
  reach: DestinationPolicy;
  resolve: Resolve;
  /** The limit for each request to the provider. */
  timeoutMs: number;
}

const TIMEOUT_MS = 10_000;

export type ProviderOptions = Pick<Config, keyof typeof SIGN_IN_OPTIONS | 'basePath'>;

/** Null without an issuer. Throws ExplainedError for options that do not fit together. */
export function providerSettings(options: ProviderOptions): ProviderSettings | null {
  const { publicUrl, basePath = '', oidcIssuer: issuer = '', oidcClientId: clientId } = options;
  if (issuer === '') return null;
  if (clientId === undefined) {
    throw new ExplainedError('--oidc-issuer needs --oidc-client-id: the id of the service at the provider');
  }
  if (publicUrl === undefined) {
    throw new ExplainedError(
      '--oidc-issuer needs --public-url, to which the provider sends browsers back: such as https://sandkeep.example.com',
    );
  }
  const url = new URL(issuer);
  if (url.protocol !== 'https:' && !options.oidcHttp) {
    throw new ExplainedError('--oidc-issuer must begin with https://; --oidc-http allows http');
  }
  return {
    issuer,
    clientId,
    clientSecret: secretOf(options),
    name: options.oidcName ?? url.host,
    scopes: options.oidcScopes,
    domains: options.oidcDomains,
    required: parsePairs(options.oidcRequire ?? '') ?? {},
    groupsClaim: options.oidcGroupsClaim,
    groupRules: options.oidcRoles.map(parseRule),
    trustEmail: options.oidcTrustEmail,
    consoleUrl: `${publicUrl}${basePath}/console`,
    reach: { allow: options.oidcAllow, http: options.oidcHttp },
    resolve: resolveBySystem,
    timeoutMs: TIMEOUT_MS,
  };
}

function secretOf({
  oidcClientSecret: secret,
  oidcClientSecretFile: file,
}: Pick<Config, 'oidcClientSecret' | 'oidcClientSecretFile'>): string | undefined {
  if (file === undefined) return secret;
  try {
    return readFileSync(file, 'utf8').trim();
  } catch (cause) {
    throw new ExplainedError(`cannot read --oidc-client-secret-file: ${(cause as Error).message}`, { cause });
  }
}

/** A rule is `group=org:role`. A group has no "=". */
function parseRule(rule: string): GroupRule {
  const at = rule.indexOf('=');
  const [org = '', role] = rule.slice(at + 1).split(':');
  const known = GROUP_ROLES.find((name) => name === role);
  if (known === undefined) throw new Error(`the option --oidc-roles has accepted the rule ${rule}`);
  return { group: rule.slice(0, at), org, role: known };
}
