import { createServer } from 'node:http';
import { beforeAll, expect, test } from 'vitest';
import { registryReach } from '../../src/settings.js';
import { describeDocker, IMAGE, makeImage } from '../support/docker.js';
import { remoteImageOf, type RemoteImage } from '../support/private-registry.js';
import {
  answered,
  credentials,
  imageOf,
  LOCAL,
  makeImages,
  newLayer,
  refusal,
  serve,
} from '../support/pulled-images.js';

describeDocker('images of docker sandboxes', () => {
  let base: RemoteImage;

  beforeAll(async () => {
    makeImage();
    base = await remoteImageOf(IMAGE);
  });

  test('are pulled with a token of the realm, which alone gets the credentials', async () => {
    const registry = await serve(imageOf(await newLayer()), { credentials, scheme: 'bearer' });
    const { ensure } = makeImages();
    await ensure(`${registry.host}/team/app:1`, { registry: credentials });
    const token = registry.requests.find((request) => request.includes('/token'));
    expect(token).toBe('GET /token?service=test&scope=repository%3Ateam%2Fapp%3Apull');
    expect(registry.logins.filter((login) => login.startsWith('Basic '))).toHaveLength(1);
  });

  test('come from redirects, which get no credentials', async () => {
    const image = imageOf(await newLayer());
    const storage = await serve(image);
    const registry = await serve(image, {
      credentials,
      intercept: ({ url, headers }, response) => {
        if (!url!.includes('/blobs/') || headers.authorization === undefined) return false;
        response.writeHead(307, { location: `http://${storage.host}${url}?signed` }).end();
        return true;
      },
    });
    storage.intercept = (request) => void (request.url = request.url!.replace('?signed', ''));
    const { ensure } = makeImages();
    expect((await ensure(`${registry.host}/team/app:1`, { registry: credentials })).id).toBe(image.config);
    expect(storage.requests).toHaveLength(2);
    expect(storage.logins).toEqual([]);
  });

  test('come from redirects whose targets name no realm for the credentials', async () => {
    const image = imageOf(await newLayer());
    const thief = await serve(image);
    const realm = { 'www-authenticate': `Bearer realm="http://${thief.host}/token"` };
    thief.intercept = ({ url }, response) =>
      url!.includes('/blobs/') && answered(response.writeHead(401, realm).end());
    const registry = await serve(image, {
      credentials,
      intercept: ({ url, headers }, response) =>
        url!.includes('/blobs/') &&
        headers.authorization !== undefined &&
        answered(response.writeHead(307, { location: `http://${thief.host}${url}` }).end()),
    });
    const { ensure } = makeImages();
    const told = await refusal(ensure(`${registry.host}/team/app:1`, { registry: credentials }));
    expect(told).toBe('the registry has no such repository, or requires credentials');
    expect(thief.logins).toEqual([]);
  });

  test('reach no address that is not public: as a registry, a redirect, a realm or a name', async () => {
    let reached = 0;
    const inside = createServer((_, response) => {
      reached += 1;
      response.end('a secret of the operator');
    });
    await new Promise<void>((resolve) => inside.listen(0, '127.0.0.2', resolve));
    const { port } = inside.address() as { port: number };
    const asked: string[] = [];
    const reach = registryReach(LOCAL, (host) => {
      asked.push(host);
      return Promise.resolve(host === 'two.example' ? ['1.1.1.1', '10.0.0.1'] : ['127.0.0.2']);
    });
    const { ensure } = makeImages({ reach });
    const refused =
      'the registry, or an address that it names, is not public: the operator can allow it with --registry-allow or --registry-http';
    const targets = [
      `127.0.0.2:${port}`,
      '169.254.169.254',
      '10.0.0.1',
      '2130706434:80',
      'registry.example',
      'two.example',
    ];
    for (const target of targets) {
      expect([target, await refusal(ensure(`${target}/team/app:1`))]).toEqual([target, refused]);
    }
    expect(asked).toEqual(['registry.example', 'two.example']);
    const registry = await serve(base);
    const places = [
      `http://127.0.0.2:${port}/x`,
      `https://127.0.0.2:${port}/x`,
      'http://169.254.169.254/latest/',
      'http://[::1]/',
      'file:///etc/passwd',
      'http://registry.example/',
    ];
    for (const place of places) {
      registry.intercept = (_, response) => answered(response.writeHead(302, { location: place }).end());
      expect([place, await refusal(ensure(`${registry.host}/team/app:1`))]).toEqual([place, refused]);
      const realm = { 'www-authenticate': `Bearer realm="${place}",service="x"` };
      registry.intercept = (_, response) => answered(response.writeHead(401, realm).end());
      expect([
        place,
        await refusal(ensure(`${registry.host}/team/app:1`, { registry: credentials })),
      ]).toEqual([place, refused]);
    }
    expect(reached).toBe(0);
    inside.close();
  });
});
