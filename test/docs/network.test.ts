import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { Evaluator, type Attempt } from '../../src/network-policy/evaluate.js';
import { PUBLIC_PROFILE } from '../../src/network-policy/public-profile.js';
import { gatedNetwork } from '../../src/spec/gated-network.js';
import type { Client } from '../support/client.js';
import { startTestService, type TestService } from '../support/service.js';

const PAGE = 'docs/network.md';
const RECIPE = /^### (.+?)\n[^`]*?(?:`[^`]+`[^`]*?)*?^```json\n(.*?)^```$/gms;
const page = readFileSync(join(PACKAGE_ROOT, PAGE), 'utf8');
const recipes = Array.from(
  page.split('\n## Recipes\n')[1]!.matchAll(RECIPE),
  ([, title, text]) => [title!, JSON.parse(text!)] as const,
);

/** `name address:port`, by TCP. */
const to = (text: string): Attempt => {
  const [destination, name] = text.split(' ').toReversed();
  const [address, port] = destination!.split(':');
  return { carrier: 'tcp', address: address!, port: Number(port), names: name === undefined ? [] : [name] };
};
const SURROUNDINGS = {
  hosts: ['172.18.0.1'],
  resolvers: ['10.0.0.53'],
  neighbours: ['172.18.0.0/16'],
  openableGroups: ['metadata' as const],
};
const WEB = '151.101.0.223:443';
/** By its recipe: destinations that a sandbox reaches, and those that it does not. */
const PROMISES: Record<string, { reaches: string[]; misses: string[]; isGated: boolean }> = {
  'Only PyPI': {
    reaches: [`pypi.org ${WEB}`, `files.pythonhosted.org ${WEB}`],
    misses: [`test.pypi.org ${WEB}`, `evil.example ${WEB}`, WEB, '10.0.0.1:443'],
    isGated: true,
  },
  'Only one API, with a key that the agent never sees': {
    reaches: [`api.example.com ${WEB}`],
    misses: [`example.com ${WEB}`, WEB],
    isGated: true,
  },
  'Everything but metadata services': {
    reaches: [WEB, '10.0.0.1:80', '151.101.0.223:22'],
    misses: ['169.254.169.254:80'],
    isGated: false,
  },
  'Only GitHub, with a token': {
    reaches: [`github.com ${WEB}`, `codeload.github.com ${WEB}`, `objects.githubusercontent.com ${WEB}`],
    misses: [`notgithub.com ${WEB}`, `pypi.org ${WEB}`],
    isGated: true,
  },
  'Only npm': {
    reaches: [`registry.npmjs.org ${WEB}`],
    misses: [`www.npmjs.com ${WEB}`, 'registry.npmjs.org 151.101.0.223:80'],
    isGated: true,
  },
  'An inner API, by its addresses': {
    reaches: ['10.20.0.7:8443'],
    misses: ['10.20.1.7:8443', '10.20.0.7:443', WEB],
    isGated: false,
  },
  'The internet without trackers': {
    reaches: [WEB, `example.com ${WEB}`],
    misses: [`ads.doubleclick.net ${WEB}`, `www.google-analytics.com ${WEB}`, '10.0.0.1:443'],
    isGated: true,
  },
  'Name servers of your own': { reaches: [WEB], misses: ['10.0.0.1:443'], isGated: true },
  'A domain with everything below it': {
    reaches: [`example.com ${WEB}`, `a.b.example.com ${WEB}`],
    misses: [`badexample.com ${WEB}`],
    isGated: true,
  },
  'All HTTPS looked into, and recorded': { reaches: [WEB], misses: ['10.0.0.1:443'], isGated: true },
};

let service: TestService;
let client: Client;
beforeAll(async () => {
  service = await startTestService();
  client = await service.newOrg();
});
afterAll(() => service.close());

test('the documented change of a secret is accepted for the sandbox of the recipe', async () => {
  const [, request] = recipes.find(([title]) => title.startsWith('Only one API'))!;
  const { body } = await client.post('/v1/sandboxes', { ...request, name: 'changed' });
  const [, text] = /### Changing a secret.+?^```json\n(.*?)^```$/ms.exec(page)!;
  const answer = await client.request('PUT', `/v1/sandboxes/${body.id}`, { body: JSON.parse(text!) });
  expect([answer.status, answer.body.applied, answer.body.changes[0].change], answer.text).toEqual([
    200,
    true,
    'rotated',
  ]);
});

test('the page has these recipes', () => {
  expect(recipes.map(([title]) => title)).toEqual(Object.keys(PROMISES));
});

test.each(recipes)(
  'the recipe "%s" is accepted as it stands, and keeps its promise',
  async (title, request) => {
    const headers = { prefer: 'handling=strict' };
    const answer = await client.request('POST', '/v1/sandboxes', { body: request, headers });
    expect(answer.status, answer.text).toBe(200);
    for (const { value } of request.network.secrets?.entries ?? []) expect(answer.text).not.toContain(value);
    const { reaches, misses, isGated } = PROMISES[title]!;
    const { policy = PUBLIC_PROFILE } = request.network;
    const evaluator = new Evaluator(policy, SURROUNDINGS);
    const reached = [...reaches, ...misses].filter((text) => evaluator.decide(to(text)).action === 'allow');
    expect(reached).toEqual(reaches);
    expect(gatedNetwork(request.network) !== undefined).toBe(isGated);
  },
);
