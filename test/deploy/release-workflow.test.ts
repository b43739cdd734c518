import { spawn } from 'node:child_process';
import { createHash, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { accessSync, constants, readdirSync, readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { delimiter, join } from 'node:path';
import { buffer, text } from 'node:stream/consumers';
import { describe, expect, onTestFinished, test } from 'vitest';
import { parseDocument } from 'yaml';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { VERSION } from '../../src/lib/version.js';
import { describeHelm, HELM_DIRECTORY } from '../support/helm.js';

const WORKFLOWS = join(PACKAGE_ROOT, '.github', 'workflows');

interface Job {
  needs?: string | string[];
  permissions?: Record<string, string>;
  steps: { uses?: string; with?: Record<string, string>; run?: string }[];
}

interface Workflow {
  permissions: Record<string, string>;
  jobs: Record<string, Job>;
}

function workflowOf(file: string): Workflow {
  const document = parseDocument(readFileSync(join(WORKFLOWS, file), 'utf8'), { strict: true });
  expect([document.errors, document.warnings]).toEqual([[], []]);
  return document.toJS() as Workflow;
}

describe.each(readdirSync(WORKFLOWS))('the workflow %s', (file) => {
  test('is YAML whose jobs, actions and programs exist', () => {
    const { permissions, jobs } = workflowOf(file);
    expect(permissions).toEqual({ contents: 'read' });
    for (const { needs = [], steps } of Object.values(jobs)) {
      expect(Object.keys(jobs)).toEqual(expect.arrayContaining([needs].flat()));
      for (const { uses, run = '' } of steps) {
        if (uses !== undefined) expect(uses).toMatch(/^[\w-]+\/[\w-]+@v\d+$/);
        for (const [program] of run.matchAll(/(?<![\w/])\.ci\/[\w-]+/g)) {
          accessSync(join(PACKAGE_ROOT, program), constants.X_OK);
        }
      }
    }
  });
});

describe('the release', () => {
  test('pushes the chart after the image, with the Helm of the tests, and may write packages only', () => {
    const { needs, permissions, steps } = workflowOf('release.yml').jobs['chart']!;
    expect(needs).toBe('image-index');
    expect(permissions).toEqual({
      contents: 'read',
      packages: 'write',
      'id-token': 'write',
      attestations: 'write',
    });
    const tested = /HELM=(\S+)/.exec(readFileSync(join(PACKAGE_ROOT, 'test/deploy/get-helm.sh'), 'utf8'))![1];
    expect(steps.find(({ uses }) => uses?.startsWith('azure/setup-helm'))!.with).toEqual({ version: tested });
  });

  describeHelm('with Helm', () => {
    test('has a chart that Helm installs by its OCI address', async () => {
      const registry = await serveRegistry();
      const charts = `oci://${registry.host}/charts`;
      const pushed = await run(join(PACKAGE_ROOT, '.ci', 'push-chart'), charts, '--plain-http');
      expect(pushed).toMatchObject({ code: 0, out: `${registry.digest()}\n` });
      const set = ['--set', 'database.existingSecret=a', '--set', 'keys.existingSecret=b'];
      const chart = [`${charts}/sandkeep`, '--version', VERSION, '--plain-http'];
      const rendered = await run('helm', 'template', 'sandkeep', ...chart, ...set);
      expect(rendered).toMatchObject({ code: 0 });
      expect(rendered.out).toContain(`image: ghcr.io/sandkeep/sandkeep:${VERSION}`);
    });

    test('fails when the registry refuses the chart', async () => {
      const registry = await serveRegistry(() => true);
      const charts = `oci://${registry.host}/charts`;
      const refused = await run(join(PACKAGE_ROOT, '.ci', 'push-chart'), charts, '--plain-http');
      expect([refused.code, refused.out]).toEqual([1, '']);
    });
  });
});

async function run(program: string, ...args: string[]) {
  const PATH = [HELM_DIRECTORY, process.env['PATH']].join(delimiter);
  const child = spawn(program, args, {
    env: { ...process.env, PATH },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const [out, err, [code]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'close') as Promise<[number]>,
  ]);
  return { code, out, err };
}

/** A registry of one repository that takes pushes without credentials (OCI distribution 1.1). */
async function serveRegistry(refuses: () => boolean = () => false) {
  const stored = new Map<string, Buffer>();
  let manifest = '';
  const digestOf = (bytes: Buffer) => `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
  const answer = async (request: IncomingMessage, response: ServerResponse) => {
    const { pathname, searchParams } = new URL(request.url!, 'http://registry');
    const [, kind = '', name = ''] = /\/(blobs|manifests)\/(?!uploads)([^/]+)$/.exec(pathname) ?? [];
    if (refuses()) return response.writeHead(403).end('{"errors":[{"code":"DENIED"}]}');
    if (request.method === 'POST') {
      const location = `${pathname.replace(/\/$/, '')}/${randomUUID()}`;
      return response.writeHead(202, { location }).end();
    }
    if (request.method === 'PUT') {
      const body = await buffer(request);
      const digest = digestOf(body);
      stored.set(digest, body);
      if (kind === 'manifests') {
        manifest = digest;
        stored.set(name, body);
      } else if (searchParams.get('digest') !== digest) return response.writeHead(400).end();
      return response.writeHead(201, { 'docker-content-digest': digest, location: pathname }).end();
    }
    const found = pathname === '/v2/' ? Buffer.from('{}') : stored.get(name);
    if (!found) return response.writeHead(404).end('{"errors":[]}');
    const type =
      kind === 'manifests' ? 'application/vnd.oci.image.manifest.v1+json' : 'application/octet-stream';
    response.writeHead(200, {
      'content-type': type,
      'content-length': found.length,
      'docker-content-digest': digestOf(found),
    });
    return response.end(request.method === 'HEAD' ? undefined : found);
  };
  const server = createServer((request, response) => void answer(request, response)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { host: `127.0.0.1:${(server.address() as AddressInfo).port}`, digest: () => manifest };
}
