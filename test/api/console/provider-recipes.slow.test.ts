import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse } from 'yaml';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { FILE_KEYS } from '../../../src/config/names.js';
import { OPTIONS } from '../../../src/config/options.js';
import { providerSettings, type ProviderOptions } from '../../../src/config/provider-settings.js';
import { SIGN_IN_OPTION_NAMES } from '../../../src/config/sign-in-options.js';
import { PACKAGE_ROOT } from '../../../src/lib/package-root.js';
import type { Option } from '../../../src/options/option.js';
import { addMember } from '../../../src/members/add.js';
import { operator } from '../../../src/audit/events/actor.js';
import type { Client } from '../../support/client.js';
import { HttpBrowser } from '../../support/openid/browser.js';
import { startProvider, startServiceWith, type TestProvider } from '../../support/openid/provider.js';
import type { TestService } from '../../support/service.js';

const GUIDE = readFileSync(join(PACKAGE_ROOT, 'docs/sign-in.md'), 'utf8');

/** The options of the files of a section, in their order. The organization `default` stands for that of the test. */
function filesOf(heading: string): ProviderOptions[] {
  const section = GUIDE.split(`\n### ${heading}\n`)[1]!.split(/\n##+ /)[0]!;
  return [...section.matchAll(/```yaml\n(.*?)```/gs)]
    .map(([, text]) => parse(text!) as Record<string, unknown>)
    .filter((file) => 'oidc-issuer' in file)
    .map(optionsOf);
}

function optionsOf(file: Record<string, unknown>): ProviderOptions {
  const options: Record<string, unknown> = Object.fromEntries(
    SIGN_IN_OPTION_NAMES.map((name) => [name, (OPTIONS[name] as Option).default]),
  );
  for (const [key, value] of Object.entries(file)) {
    const name = FILE_KEYS.get(key)!;
    const { type } = OPTIONS[name] as Option;
    options[name] = type.parse(type.textOf(value, '/')!);
    expect([key, options[name]]).not.toEqual([key, undefined]);
  }
  return {
    ...options,
    publicUrl: 'https://sandkeep.example.com',
    oidcClientSecretFile: undefined,
  } as ProviderOptions;
}

const ids = {
  admin: '5f0a2c1e-8d37-4a52-9b1c-3e6f7a8b9c0d',
  developer: '0c9b8a7f-6e3f-4c1b-a252-1e2c5f0a8d37',
};
const verified = { email_verified: true };

/**
 * The claims that each provider documents for a person. `inIdToken`: they are in the ID token; else the provider has
 * them in userinfo.
 */
const RECIPES = [
  {
    title: 'Keycloak, groups',
    heading: 'Keycloak',
    inIdToken: true,
    claims: { ...verified, preferred_username: 'ada', groups: ['platform', 'everybody'] },
    other: { groups: ['ml'] },
    none: { groups: [] },
  },
  {
    title: 'Keycloak, realm roles',
    heading: 'Keycloak',
    file: 1,
    inIdToken: true,
    claims: { ...verified, realm_access: { roles: ['default-roles-main', 'sandkeep-admin'] } },
    other: { realm_access: { roles: ['offline_access', 'sandkeep-developer'] } },
    none: { realm_access: { roles: ['default-roles-main'] } },
  },
  {
    title: 'Keycloak, realm roles in userinfo',
    heading: 'Keycloak',
    file: 1,
    inIdToken: false,
    claims: { ...verified, realm_access: { roles: ['sandkeep-admin'] } },
    other: { realm_access: { roles: ['sandkeep-developer'] } },
    none: { realm_access: undefined },
  },
  {
    title: 'GitHub by Dex',
    heading: 'Dex, and GitHub by Dex',
    inIdToken: true,
    claims: {
      ...verified,
      groups: ['example', 'example:platform'],
      federated_claims: { connector_id: 'github', user_id: '4711' },
    },
    other: { groups: ['example', 'example:ml'] },
    none: { groups: ['example'] },
  },
  {
    title: 'Entra',
    heading: 'Entra',
    inIdToken: true,
    claims: { tid: 'a-tenant', oid: 'an-object', preferred_username: 'ada@example.com', groups: [ids.admin] },
    other: { groups: [ids.developer] },
    none: { groups: undefined },
  },
  {
    title: 'Okta',
    heading: 'Okta',
    inIdToken: false,
    claims: { ...verified, preferred_username: 'ada@example.com', groups: ['Everyone', 'Platform'] },
    other: { groups: ['Everyone', 'ML team'] },
    none: { groups: ['Everyone'] },
  },
] as const;

let people = 0;

describe.each([true, false])('with the claims in the ID token: %s', (inIdToken) => {
  let provider: TestProvider;
  let service: TestService;
  let client: Client;

  beforeAll(async () => {
    provider = await startProvider({}, { inIdToken });
    service = await startServiceWith(provider.settings, { worker: false });
    await provider.register();
  });
  afterAll(async () => {
    await service.close();
    await provider.close();
  });
  beforeEach(async () => {
    client = await service.newOrg();
  });

  /** Sets what a file of the guide decides. The issuer, the client and the addresses stay those of the test. */
  function use(heading: string, file = 0): void {
    const given = providerSettings(filesOf(heading)[file]!)!;
    const { domains, required, groupsClaim, trustEmail } = given;
    const groupRules = given.groupRules.map((rule) => ({ ...rule, org: client.org.slug }));
    Object.assign(provider.settings, { domains, required, groupsClaim, trustEmail, groupRules });
  }

  /** Signs in, and returns the role, or the word for the refusal. */
  async function signIn(account: string): Promise<string> {
    const browser = new HttpBrowser();
    const isCallback = ({ pathname }: URL) => pathname === '/console/sign-in/callback';
    let { url } = await browser.follow(`${service.url}/console/sign-in/provider`, isCallback);
    const answer = await browser.submit(url, { account });
    ({ url } = await browser.follow(new URL(answer.headers.get('location')!, url).href, isCallback));
    const { headers } = await browser.request(url);
    const problem = new URL(headers.get('location')!).searchParams.get('problem');
    if (problem !== null) return problem;
    const cookie = `sandkeep_session=${browser.cookie(service.url, 'sandkeep_session')}`;
    const session: any = await (
      await fetch(`${service.url}/console/session`, { headers: { cookie } })
    ).json();
    expect(session.organization.id).toBe(client.org.id);
    return session.member.role;
  }

  async function newAccount(claims: object): Promise<(more: object) => Promise<void>> {
    people += 1;
    const account = `account-${people}`;
    const set = (more: object) =>
      provider.setAccount(account, { email: `${account}@example.com`, name: 'Ada', ...claims, ...more });
    await set({});
    return set;
  }

  const recipes = RECIPES.filter((recipe) => recipe.inIdToken === inIdToken);
  test.each(recipes)(
    '$title: groups give the roles of the guide, change them, and take them',
    async (recipe) => {
      use(recipe.heading, 'file' in recipe ? recipe.file : 0);
      const set = await newAccount(recipe.claims);
      const account = `account-${people}`;
      expect(await signIn(account)).toBe('admin');
      await set(recipe.other);
      expect(await signIn(account)).toBe('developer');
      await set(recipe.none);
      expect(await signIn(account)).toBe('no_member');
    },
  );

  test('Google: the Workspace decides who comes, and members are added by name', async () => {
    use('Google');
    await newAccount({ ...verified, hd: 'example.com' });
    const account = `account-${people}`;
    expect(await signIn(account)).toBe('no_member');
    const member = { email: `${account}@example.com`, role: 'developer' as const, displayName: null };
    await addMember(service.ctx.pool, client.org.id, member, operator('test'));
    expect(await signIn(account)).toBe('developer');
    for (const hd of [undefined, 'other.example', 'example.com.evil.example']) {
      await newAccount({ ...verified, hd });
      expect(await signIn(`account-${people}`)).toBe('not_allowed');
    }
  });

  test('Entra: a person with too many groups is refused, and keeps the memberships', async () => {
    use('Entra');
    const set = await newAccount({ groups: [ids.developer] });
    const account = `account-${people}`;
    expect(await signIn(account)).toBe('developer');
    await set({
      groups: undefined,
      _claim_names: { groups: 'src1' },
      _claim_sources: { src1: { endpoint: 'https://graph.example.com/getMemberObjects' } },
    });
    expect(await signIn(account)).toBe('provider');
    const { body } = await client.get('/v1/members');
    expect(body.data).toMatchObject([{ email: `${account}@example.com`, role: 'developer' }]);
    expect(service.logs.join('\n')).toContain('too many groups for the claim groups');
    await set({ groups: [ids.admin] });
    expect(await signIn(account)).toBe('admin');
  });
});

test('the guide has a file for each recipe', () => {
  for (const heading of new Set(RECIPES.map((recipe) => recipe.heading))) {
    const files = RECIPES.filter((recipe) => recipe.heading === heading).map((recipe) =>
      'file' in recipe ? recipe.file : 0,
    );
    expect(filesOf(heading)).toHaveLength(Math.max(...files) + 1);
  }
  expect(filesOf('Google')).toHaveLength(1);
});
