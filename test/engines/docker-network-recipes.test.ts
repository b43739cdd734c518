import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { describeDocker } from '../support/docker.js';
import { makeClientImage } from '../support/internet/client-image.js';
import { GatedService } from '../support/internet/gated-service.js';
import { Internet } from '../support/internet/internet.js';
import { describeNetns } from '../support/netns.js';
import { prepareImages } from '../support/prepare-images.js';

const NUMBER = 6;
const page = readFileSync(join(PACKAGE_ROOT, 'docs/network.md'), 'utf8');
const recipes = Array.from(page.split('\n## Recipes\n')[1]!.matchAll(/^```json\n(.*?)^```$/gms), ([, text]) =>
  JSON.parse(text!),
);
/** Programs by the name of the recipe. Those that `reach` print `hello` or the echo of a request. */
const PROMISES: Record<string, { reach?: string[]; miss: string[]; headers?: Record<string, string> }> = {
  'only-pypi': {
    reach: ['https://pypi.org/', 'https://files.pythonhosted.org/'],
    miss: ['https://github.com/'],
  },
  'one-api': {
    reach: ['-H "authorization: Bearer $API_KEY" https://api.example.com/'],
    miss: ['https://example.com/'],
    headers: { authorization: 'Bearer sk-the-real-key' },
  },
  'no-metadata': { reach: ['http://pypi.org/'], miss: ['http://169.254.169.254/'] },
  'only-github': {
    reach: ['-u "x-access-token:$GITHUB_TOKEN" https://github.com/', 'https://codeload.github.com/'],
    miss: ['https://pypi.org/'],
    headers: {
      authorization: `Basic ${Buffer.from('x-access-token:ghp_the-real-token').toString('base64')}`,
    },
  },
  'only-npm': {
    reach: ['https://registry.npmjs.org/'],
    miss: ['http://registry.npmjs.org/', 'https://www.npmjs.com/'],
  },
  'inner-api': { miss: ['https://pypi.org/', 'https://10.20.1.7:8443/'] },
  'no-trackers': { reach: ['https://pypi.org/'], miss: ['https://ads.doubleclick.net/'] },
  'own-names': { reach: ['https://pypi.org/'], miss: ['http://10.20.0.7/'] },
  'one-company': {
    reach: ['https://example.com/', 'https://a.b.example.com/'],
    miss: ['https://badexample.com/'],
  },
  inspected: { reach: ['https://pypi.org/'], miss: ['http://10.20.0.7/'] },
};
const HOSTS = [
  'a.b.example.com',
  'ads.doubleclick.net',
  'api.example.com',
  'badexample.com',
  'codeload.github.com',
  'example.com',
  'files.pythonhosted.org',
  'github.com',
  'pypi.org',
  'registry.npmjs.org',
  'www.npmjs.com',
];

describeDocker('the recipes of the documents', () => {
  describeNetns('with the firewall tools', () => {
    let internet: Internet;
    let service: GatedService;

    prepareImages(makeClientImage);
    beforeAll(async () => {
      internet = await Internet.start({
        number: NUMBER,
        zone: (address) =>
          Object.fromEntries(HOSTS.map((host, index) => [host, { addresses: [address(10 + index)] }])),
      });
      service = await GatedService.start(internet);
    });
    afterAll(async () => {
      await service?.close();
      await internet?.close();
    });

    test('are those with a promise', () => {
      expect(recipes.map(({ name }) => name)).toEqual(Object.keys(PROMISES));
    });

    test.each(recipes.map((recipe) => [recipe.name, recipe]))(
      '%s keeps its promise',
      async (name, recipe) => {
        const { reach = [], miss, headers = {} } = PROMISES[name]!;
        const { network } = recipe;
        // The programs of the recipe are those of this image, and its internet is that of the test.
        if (network.dns) network.dns.nameservers = [internet.resolver];
        const tls = { ...network.tls, upstream_ca_cert: [internet.authority.root] };
        const isDecrypting = network.secrets !== undefined || network.tls !== undefined;
        const id = await service.create(name, { ...network, ...(isDecrypting ? { tls } : {}) });
        const curl = async (args: string) =>
          service.sh(id, `curl -sS -m 100 ${isDecrypting ? '' : '-k'} ${args}`);
        await internet.requests();
        for (const args of reach) expect(await curl(args), args).toContain('hello');
        const [first] = await internet.requests();
        for (const [field, value] of Object.entries(headers))
          expect(first!.headers).toContainEqual([field, value]);
        for (const args of miss) expect(await curl(`-m 3 ${args}`), args).not.toContain('hello');
        expect(await internet.requests()).toEqual([]);
        await service.client.delete(`/v1/sandboxes/${id}`);
      },
    );
  });
});
