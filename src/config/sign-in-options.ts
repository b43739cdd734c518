import { isCidr } from '../lib/cidr.js';
import { choice, httpOrigin, httpUrl, list, onOff, pairs, path, text } from '../options/types.js';

/** The roles that groups can give (access/roles.ts), the strongest first. */
export const GROUP_ROLES = ['owner', 'admin', 'developer', 'member', 'viewer', 'finance', 'auditor'] as const;

const RULE = new RegExp(`^[^=]+=[a-z0-9-]+:(?:${GROUP_ROLES.join('|')})$`);

export const SIGN_IN_OPTIONS = {
  publicUrl: {
    type: httpOrigin,
    description:
      'URL at which browsers reach the service, without --base-path, for links and for the provider of sign-ins',
    unset: 'http://localhost with --port',
    setting: true,
  },
  passkeys: {
    type: choice('<when>', ['auto', 'on', 'off']),
    description:
      'whether members sign in with passkeys, at --public-url or localhost; auto: where people have no --oidc-issuer',
    default: 'auto',
  },
  oidcIssuer: {
    type: httpUrl,
    description: 'issuer of the OpenID provider that people sign in with; see docs/sign-in.md',
    unset: 'people sign in by links',
  },
  oidcClientId: {
    type: text('<id>', 'a client id'),
    description: 'id of the service at the provider',
    unset: 'none',
  },
  oidcClientSecretFile: {
    type: path('<file>'),
    description: 'file with the secret of the service at the provider',
    unset: '--oidc-client-secret',
  },
  oidcClientSecret: {
    type: text('<secret>', 'a secret'),
    description: 'the same secret; prefer the environment or a file, as "ps" shows flags',
    unset: 'a public client',
    secret: true,
  },
  oidcName: {
    type: text('<name>', 'a name'),
    description: 'name of the provider on the sign-in page',
    unset: 'the host of the issuer',
  },
  oidcScopes: {
    type: text('<scopes>', 'scopes of OpenID Connect, separated by spaces'),
    description: 'scopes of a sign-in by the provider',
    default: 'openid email profile',
  },
  oidcDomains: {
    type: list('<domains>', 'domains such as example.com, separated by commas', (domain) =>
      /^[a-z0-9.-]+$/i.test(domain) ? domain.toLowerCase() : undefined,
    ),
    description: 'domains of the addresses that may sign in',
    default: [],
    unset: 'every domain',
  },
  oidcRequire: {
    type: pairs,
    description: 'claims that a person must have, such as hd=example.com,department=research',
    unset: 'none',
  },
  oidcGroupsClaim: {
    type: text('<name>', 'the name of a claim'),
    description: 'claim with the groups of a person; a path such as realm_access.roles leads into objects',
    default: 'groups',
  },
  oidcRoles: {
    type: list(
      '<rules>',
      `rules such as group=org:role, separated by commas, with one of the roles ${GROUP_ROLES.join(', ')}`,
      (rule) => (RULE.test(rule) ? rule : undefined),
    ),
    description: 'roles by groups: ml-team=research:developer makes the group developers of the organization',
    default: [],
    unset: 'members are added by name',
  },
  oidcTrustEmail: {
    type: onOff,
    description: 'take addresses for verified although the provider does not say so, as Entra',
    default: false,
  },
  oidcAllow: {
    type: list('<cidrs>', 'addresses and CIDR blocks, separated by commas', (block) =>
      isCidr(block) ? block : undefined,
    ),
    description: 'networks that are not public and that the provider may be in',
    default: [],
  },
  oidcHttp: {
    type: onOff,
    description: 'the provider may use http, unencrypted: only on the same machine',
    default: false,
  },
} as const;

export const SIGN_IN_OPTION_NAMES = Object.keys(SIGN_IN_OPTIONS) as (keyof typeof SIGN_IN_OPTIONS)[];
