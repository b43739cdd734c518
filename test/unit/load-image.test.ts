import Docker from 'dockerode';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { expect, onTestFinished, test } from 'vitest';
import { ImageBudget } from '../../src/registry/layer-check.js';
import { loadImage } from '../../src/engines/docker/images/load-image.js';
import { layerOf } from '../support/private-registry.js';

const digestOf = (bytes: Buffer) => `sha256:${createHash('sha256').update(bytes).digest('hex')}`;

/** Takes archives as an engine does. */
async function openEngine(): Promise<{ docker: Docker; archives: Buffer[] }> {
  const archives: Buffer[] = [];
  const take = async (request: IncomingMessage, response: ServerResponse) => {
    archives.push(await buffer(request));
    response.end('{}');
  };
  const server = createServer((request, response) => void take(request, response)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return {
    docker: new Docker({ host: '127.0.0.1', port: (server.address() as AddressInfo).port }),
    archives,
  };
}

async function load(docker: Docker, layer: Buffer): Promise<void> {
  const digest = digestOf(layer);
  await loadImage(
    docker,
    {
      name: 'team/app:1',
      config: Buffer.from('{}'),
      layers: [{ digest, size: layer.length, diffId: digest }],
    },
    {
      budget: new ImageBudget({ bytes: 1_048_576, beyond: 'too_large' }, () => undefined),
      openBlob: async () =>
        Promise.resolve(
          (async function* () {
            yield layer;
          })(),
        ),
      signal: new AbortController().signal,
      step: async (work) => Promise.resolve(work()),
      onSent: () => undefined,
    },
  );
}

/** The names of the files of an archive whose files are short. */
function namesIn(archive: Buffer): string[] {
  const names: string[] = [];
  for (let at = 0; archive[at] !== 0;) {
    names.push(archive.toString('latin1', at, archive.indexOf(0, at)));
    const size = Number.parseInt(archive.toString('latin1', at + 124, at + 136), 8);
    at += 512 + Math.ceil(size / 512) * 512;
  }
  return names;
}

test('two archives share no name but that of the manifest, which leads to their files', async () => {
  const { docker, archives } = await openEngine();
  const layer = await layerOf({ file: 'x' });
  await load(docker, layer);
  await load(docker, layer);
  const [first, second] = archives.map(namesIn) as [string[], string[]];
  expect(first).toHaveLength(3);
  expect(first.filter((name) => second.includes(name))).toEqual(['manifest.json']);
  for (const name of first.slice(0, 2)) expect(archives[0]!.toString('latin1')).toContain(`"${name}"`);
});
