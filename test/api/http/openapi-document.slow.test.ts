import { ended, forked } from '../../support/snapshots.js';
import { endedBuild } from '../../support/templates.js';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { request, type IncomingMessage } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { operator } from '../../../src/audit/events/actor.js';
import { PACKAGE_ROOT } from '../../../src/lib/package-root.js';
import { addMember } from '../../../src/members/add.js';
import type { Answer } from '../../support/answer.js';
import type { Client } from '../../support/client.js';
import { destroyAll, onDocker } from '../../support/docker-service.js';
import { describeDocker, IMAGE, makeImage } from '../../support/docker.js';
import { newMember, signInMember } from '../../support/members.js';
import { expectDocumented, openapi, operations } from '../../support/openapi.js';
import { startTestService, type TestService } from '../../support/service.js';
import { untilStatus } from '../../support/polling.js';

type Json = { [key: string]: unknown };
interface Content {
  [type: string]: { schema?: Json; example?: unknown };
}
interface Documented {
  operationId: string;
  'x-required-scope'?: string;
  description?: string;
  parameters?: { name: string; in: string; description?: string; required?: boolean; example?: unknown }[];
  requestBody?: { content: Content };
  responses: Record<string, { description?: string; headers?: Record<string, Json>; content?: Content }>;
}

const documented = operations.map(({ method, path, operation }) => ({
  method,
  path,
  operation: operation as unknown as Documented,
}));
const byId = new Map(documented.map((entry) => [entry.operation.operationId, entry]));

function headerOf(header: Json): Json {
  const name = (header['$ref'] as string | undefined)?.split('/').at(-1);
  const { headers } = openapi.components as unknown as { headers: Record<string, Json> };
  return name === undefined ? header : headers[name]!;
}

function componentOf(schema: Json): Json {
  const name = (schema['$ref'] as string | undefined)?.split('/').at(-1);
  return name === undefined ? {} : (openapi.components.schemas[name] as Json);
}

/** The fields below a schema that have no description, neither their own nor that of a component. */
function undescribed(schema: unknown, place: string): string[] {
  if (Array.isArray(schema)) return schema.flatMap((part, index) => undescribed(part, `${place}[${index}]`));
  if (typeof schema !== 'object' || schema === null) return [];
  const { properties = {}, ...rest } = schema as Json;
  return [
    ...Object.entries(properties as Record<string, Json>).flatMap(([name, field]) => [
      ...(hasText(field['description'] ?? componentOf(field)['description']) ? [] : [`${place}.${name}`]),
      ...undescribed(field, `${place}.${name}`),
    ]),
    ...['items', 'additionalProperties', 'anyOf', 'oneOf', 'allOf'].flatMap((key) =>
      undescribed(rest[key], place),
    ),
  ];
}

function hasText(text: unknown): boolean {
  return typeof text === 'string' && text.trim() !== '' && text !== 'Default Response';
}

/** The first media type of a body: the one with the example. */
function first(content: Content | undefined): [string, { schema?: Json; example?: unknown }] | undefined {
  return Object.entries(content ?? {})[0];
}

/** The answer with the example: a success, or the refusal of operations without success. */
function exampleOf({ responses }: Documented): { status: number; type: string; value: unknown } | undefined {
  for (const [status, { content }] of Object.entries(responses)) {
    for (const [type, { example }] of Object.entries(content ?? {})) {
      if (example !== undefined) return { status: Number(status), type, value: example };
    }
  }
  return undefined;
}

describe('openapi.json', () => {
  test('describes every operation, parameter, body and header', () => {
    const missing = documented.flatMap(({ method, path, operation }) => {
      const place = `${method} ${path}`;
      return [
        ...(hasText(operation.description) ? [] : [place]),
        ...(operation.parameters ?? []).flatMap(({ name, description }) =>
          hasText(description) ? [] : [`${place} parameter ${name}`],
        ),
        ...undescribed(first(operation.requestBody?.content)?.[1].schema, `${place} body`),
        ...Object.entries(operation.responses).flatMap(([status, { description, headers, content }]) => [
          ...(hasText(description) ? [] : [`${place} ${status}`]),
          ...Object.entries(headers ?? {}).flatMap(([name, given]) => {
            const header = headerOf(given);
            return hasText(header['description'] ?? (header['schema'] as Json | undefined)?.['description'])
              ? []
              : [`${place} ${status} header ${name}`];
          }),
          ...Object.values(content ?? {}).flatMap(({ schema }) => undescribed(schema, `${place} ${status}`)),
        ]),
      ];
    });
    expect(missing).toEqual([]);
  });

  test('describes every field of every component', () => {
    const missing = Object.entries(openapi.components.schemas).flatMap(([name, schema]) =>
      undescribed(schema, name),
    );
    expect(missing).toEqual([]);
  });

  test('names the variants of every choice by their words', () => {
    const inline: string[] = [];
    for (const [name, schema] of Object.entries(openapi.components.schemas) as [string, Json][]) {
      for (const variant of (schema['oneOf'] ?? schema['anyOf'] ?? []) as Json[]) {
        if (variant['type'] === 'object' && variant['properties'] !== undefined) inline.push(name);
      }
      const { mapping = {} } = (schema['discriminator'] ?? {}) as { mapping?: Record<string, string> };
      for (const reference of Object.values(mapping)) expect(componentOf({ $ref: reference })).toBeDefined();
      if ('discriminator' in schema) expect([name, Object.keys(mapping)]).not.toEqual([name, []]);
    }
    expect(inline).toEqual([]);
    expect(Object.keys(openapi.components.schemas)).toEqual(
      expect.arrayContaining(['CloudPatchCopyFile', 'EventActorApiKey', 'DestinationByCidr']),
    );
  });

  test('shares the refusals and parameters of several operations, and describes the headers of all', () => {
    const { paths } = JSON.parse(readFileSync(join(PACKAGE_ROOT, 'openapi.json'), 'utf8')) as typeof openapi;
    const whole = Object.values(paths).flatMap((methods) => Object.values(methods));
    const repeated = (parts: unknown[]) => {
      const texts = parts.map((part) => JSON.stringify(part)).filter((text) => !text.startsWith('{"$ref'));
      return texts.length - new Set(texts).size;
    };
    const refusals = whole.flatMap(({ responses }) =>
      Object.entries(responses).filter(([status]) => Number(status) >= 400),
    );
    expect(repeated(refusals.map(([, refusal]) => refusal))).toBe(0);
    expect(
      repeated(whole.flatMap((operation) => (operation as unknown as Documented).parameters ?? [])),
    ).toBe(0);
    for (const { operation } of documented) {
      for (const [status, { headers = {} }] of Object.entries(operation.responses)) {
        expect(Object.keys(headers)).toContain('x-request-id');
        expect([status, 'Retry-After' in headers]).toEqual([status, ['429', '503', '507'].includes(status)]);
      }
    }
  });

  test('has the refusals of a body for every operation that reads one', () => {
    /** Their body is data of any type. */
    const data = [/^write_(sandbox|volume)_file/, /^import_snapshot$/];
    const missing = documented
      .filter(
        ({ method, operation }) => method !== 'GET' && !data.some((id) => id.test(operation.operationId)),
      )
      .filter(({ operation: { responses } }) => !('413' in responses && '415' in responses))
      .map(({ operation }) => operation.operationId);
    expect(missing).toEqual([]);
  });

  test('has an example of every body, answer and required parameter', () => {
    const missing = documented.flatMap(({ method, path, operation }) => {
      const place = `${method} ${path}`;
      const body = first(operation.requestBody?.content);
      return [
        ...(operation.parameters ?? []).flatMap(({ name, required, example }) =>
          required === true && example === undefined ? [`${place} parameter ${name}`] : [],
        ),
        ...(body && body[1].example === undefined ? [`${place} body`] : []),
        ...(exampleOf(operation) ? [] : [`${place} answer`]),
      ];
    });
    expect(missing).toEqual([]);
  });
});

const isInside = ({ operation }: (typeof documented)[number]) =>
  operation['x-required-scope'] === 'sandboxes:exec';

describe('the example of', () => {
  let service: TestService;
  beforeAll(async () => {
    service = await startTestService();
  });
  afterAll(() => service.close());

  test('the document itself: small, compressed, and not sent again to a client that has it', async () => {
    const ask = (headers: Record<string, string>) =>
      fetch(`${service.url}/openapi.json`, { headers: { 'accept-encoding': 'identity', ...headers } });
    const plain = await ask({});
    const text = await plain.text();
    const served = JSON.parse(text) as { servers: { url: string }[] };
    expect(text).toBe(JSON.stringify(served));
    expect({ ...served, servers: [] }).toEqual({
      ...(JSON.parse(readFileSync(join(PACKAGE_ROOT, 'openapi.json'), 'utf8')) as object),
      servers: [],
    });
    const etag = plain.headers.get('etag')!;
    expect(plain.headers.get('content-encoding')).toBeNull();
    // `fetch` would decompress it.
    const asked = request(`${service.url}/openapi.json`, {
      headers: { 'accept-encoding': 'br, gzip' },
    }).end();
    const [answer] = (await once(asked, 'response')) as [IncomingMessage];
    expect(answer.headers).toMatchObject({ 'content-encoding': 'gzip', etag, vary: 'accept-encoding' });
    const compressed = await buffer(answer);
    expect(gunzipSync(compressed).toString()).toBe(text);
    expect(compressed.length).toBeLessThan(text.length / 4);
    const again = await ask({ 'if-none-match': `"other", ${etag}` });
    expect([again.status, await again.text(), again.headers.get('etag')]).toEqual([304, '', etag]);
    expect((await ask({ 'if-none-match': '"other"' })).status).toBe(200);
  });
  checkExamples(
    documented.filter((entry) => !isInside(entry)),
    () => service,
  );
});

describeDocker('inside a container, the example of', () => {
  let service: TestService;
  const clients: Client[] = [];
  beforeAll(async () => {
    makeImage();
    service = await startTestService({
      ...onDocker({ capacity: { vcpus: 1_000, memoryMib: 1_000_000 } }),
      settings: { stopGraceMs: 0 },
    });
  });
  afterAll(async () => {
    await destroyAll(service, ...clients);
    await service.close();
  });
  checkExamples(documented.filter(isInside), () => service, clients);
});

/** The container of the examples: of the image that needs no registry. */
const CONTAINER = {
  image: { type: 'oci', reference: IMAGE },
  pull_policy: 'never',
  runtime: { cmd: ['sleep', '600'] },
};

/** A sandbox whose secret is to change was created with it. */
function withSecret({ operation }: (typeof documented)[number]): object {
  const entry = {
    env_var: 'API_KEY',
    value: 'a',
    allowed_hosts: [{ type: 'exact', value: 'api.example.com' }],
  };
  return /modif/.test(operation.operationId) ? { network: { secrets: { entries: [entry] } } } : {};
}

/** Collects the clients that it makes in `clients`. */
function checkExamples(
  entries: typeof documented,
  serviceOf: () => TestService,
  clients: Client[] = [],
): void {
  test.each(entries.map((entry) => [entry.operation.operationId, entry] as const))(
    '%s works and has the fields of a real answer',
    async (_, entry) => {
      const client = await serviceOf().newOrg();
      clients.push(client);
      /** Maps ids of the examples to ids of the service. */
      const ids = new Map<unknown, string>();

      async function send({ method, path, operation }: (typeof documented)[number]) {
        const given = (operation.parameters ?? []).filter(({ example }) => example !== undefined);
        const at = (place: string) =>
          given
            .filter((parameter) => parameter.in === place)
            .map(({ name, example }): [string, string] => [name, ids.get(example) ?? String(example)]);
        const address = at('path').reduce(
          (text, [name, value]) => text.replace(`{${name}}`, encodeURIComponent(value)),
          path,
        );
        const shown = first(operation.requestBody?.content)?.[1].example;
        const isCreation = operation.operationId === 'create_sandbox';
        const changes = isCreation ? (isInside(entry) ? CONTAINER : withSecret(entry)) : {};
        const named = isObject(shown) && ids.has(shown['sandbox_id']);
        const sandboxId = named ? { sandbox_id: ids.get(shown['sandbox_id']) } : {};
        const body = isObject(shown) ? { ...shown, ...changes, ...sandboxId } : shown;
        if (operation.operationId === 'create_token') return check(await asMember(address, body));
        const answer = await client.request(method, address, {
          query: Object.fromEntries(
            given
              .filter((parameter) => parameter.in === 'query')
              .map(({ name, example }) => [
                name,
                Array.isArray(example) ? example.map(String) : String(example),
              ]),
          ),
          headers: Object.fromEntries(at('header')),
          ...(body === undefined ? {} : { body }),
        });
        return check(answer);

        function check(answer: Answer) {
          const example = exampleOf(operation)!;
          expect(answer.status, answer.text).toBe(example.status);
          ids.set(idIn(example.value), idIn(answer.body) ?? '');
          return { address, answer, example };
        }
      }

      /** Only members make personal tokens. */
      async function asMember(address: string, body: unknown): Promise<Answer> {
        const { id } = client.org;
        const session = await signInMember(serviceOf(), id, await newMember(serviceOf(), id, 'developer'));
        const answer = await session.fetch(address, { method: 'POST', body: JSON.stringify(body) });
        const text = await answer.text();
        return { status: answer.status, headers: answer.headers, text, body: JSON.parse(text) };
      }

      if (entry.path.startsWith('/v1/members/')) {
        // Nobody becomes a member by a request to the API.
        const person = { email: 'ada@example.com', role: 'viewer', displayName: 'Ada' } as const;
        const { pool } = serviceOf().ctx;
        const { id } = await addMember(pool, client.org.id, person, operator('test'));
        ids.set(entry.operation.parameters?.find(({ name }) => name === 'member_id')?.example, id);
      }
      for (const id of operationsBefore(entry)) {
        const { answer } = await send(byId.get(id)!);
        if (id === 'stop_sandbox') await untilStatus(client, answer.body.id as string, 'stopped');
        if (id === 'create_snapshot') await ended(client, answer.body.id as string);
        if (id === 'create_template') await endedBuild(client, answer.body.id as string);
        if (id === 'fork_sandbox') await forked(client, answer.body.id as string);
      }
      const { address, answer, example } = await send(entry);
      if (answer.body === undefined) return;
      expectDocumented(entry.method, address, {
        ...answer,
        body: example.value,
        text: JSON.stringify(example.value),
      });
      expect(inventedFields(example.value, answer.body)).toEqual([]);
    },
  );
}

/** The operations whose examples create the resources that the example of an operation refers to. */
function operationsBefore({ path, operation: { operationId } }: (typeof documented)[number]): string[] {
  if (operationId === 'get_event') return ['create_sandbox', 'list_events'];
  if (operationId.startsWith('start_')) return ['create_sandbox', 'stop_sandbox'];
  if (operationId === 'restore_volume') return ['create_volume', 'delete_volume'];
  if (operationId === 'create_snapshot') return ['create_sandbox'];
  if (operationId === 'restore_snapshot') return ['create_sandbox', 'create_snapshot', 'delete_snapshot'];
  if (path.startsWith('/v1/snapshot')) return ['create_sandbox', 'create_snapshot'];
  if (path.startsWith('/v1/templates') && operationId !== 'create_template') return ['create_template'];
  if (path.startsWith('/v1/fork-operations')) return ['create_sandbox', 'fork_sandbox'];
  if (path.includes('{delivery_id}')) return ['create_webhook', 'test_webhook'];
  if (path.startsWith('/v1/volumes/{id}/files')) return ['create_volume', 'write_volume_file'];
  if (path.startsWith('/v1/volumes/{id}')) return ['create_volume'];
  if (path.includes('{preview_id}')) return ['create_sandbox', 'create_sandbox_preview'];
  if (path.includes('/files')) return ['create_sandbox', 'write_sandbox_file_by_name'];
  if (path.startsWith('/v1/keys/{id}')) return ['create_key'];
  if (path === '/v1/pools/{name}' && operationId !== 'put_pool') return ['put_pool'];
  if (path.startsWith('/v1/registry-credentials/')) return ['create_registry_credential'];
  if (path.startsWith('/v1/budgets/')) return ['create_budget'];
  if (path.startsWith('/v1/webhooks/')) return ['create_webhook'];
  if (path.startsWith('/v1/invitations/')) return ['create_invitation'];
  if (path.startsWith('/v1/tokens/')) return ['create_token'];
  return ['/v1/sandboxes/', '/v1/billing'].some((start) => path.startsWith(start)) ? ['create_sandbox'] : [];
}

function idIn(body: unknown): string | undefined {
  const { id, data } = (body ?? {}) as { id?: string; data?: { id?: string }[] };
  return id ?? data?.[0]?.id;
}

/** The keys of these objects differ between answers. The schema checks them. */
const OPEN = new Set(['actor', 'created_by', 'labels', 'payload']);

/** The fields of an example that the real answer lacks. */
function inventedFields(example: unknown, real: unknown, place = ''): string[] {
  if (Array.isArray(example) && Array.isArray(real)) {
    return example.length > 0 && real.length > 0 ? inventedFields(example[0], real[0], `${place}[]`) : [];
  }
  if (!isObject(example) || !isObject(real)) return [];
  return Object.entries(example).flatMap(([key, value]) =>
    OPEN.has(key)
      ? []
      : key in real
        ? inventedFields(value, real[key], `${place}.${key}`)
        : [`${place}.${key}`],
  );
}

function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
