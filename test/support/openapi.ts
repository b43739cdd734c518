import formats from 'ajv-formats';
import Ajv2020 from 'ajv/dist/2020.js';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { inlineOpenapi } from '../../scripts/inline-openapi.js';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import type { Answer } from './answer.js';

/** The committed description, which `npm run check` compares with the service. */
export const openapi = inlineOpenapi(
  JSON.parse(readFileSync(join(PACKAGE_ROOT, 'openapi.json'), 'utf8')) as {
    paths: Record<string, Record<string, Operation>>;
    components: { schemas: Record<string, unknown> };
  },
);

interface Operation {
  operationId: string;
  summary: string;
  /** Absent: every key may call it. */
  'x-required-scope'?: string;
  responses: Record<string, { description?: string; content?: Record<string, { schema: unknown }> }>;
}

const ajv = new Ajv2020.default({
  strict: false,
  allErrors: true,
  discriminator: false,
  // As in the service: shorter compilations.
  code: { optimize: false },
});
formats.default(ajv);
ajv.addSchema(closed(openapi) as object, 'openapi');

/** Forbids undocumented properties: an object has only those that its schema lists. */
function closed(node: unknown): unknown {
  if (Array.isArray(node)) return node.map(closed);
  if (typeof node !== 'object' || node === null) return node;
  const copy = Object.fromEntries(Object.entries(node).map(([key, value]) => [key, closed(value)]));
  if (copy['type'] === 'object' && 'properties' in copy && !('additionalProperties' in copy)) {
    copy['additionalProperties'] = false;
  }
  return copy;
}

/** Every operation with its path pattern, method in upper case. */
export const operations = Object.entries(openapi.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, operation]) => ({ path, method: method.toUpperCase(), operation })),
);

function findOperation(method: string, path: string) {
  const parts = path.split('/');
  const matches = operations.filter((candidate) => {
    const pattern = candidate.path.split('/');
    return (
      candidate.method === method &&
      pattern.length === parts.length &&
      pattern.every((part, index) => part.startsWith('{') || part === parts[index])
    );
  });
  // A literal part takes precedence over a parameter, as in the router.
  return matches.toSorted((a, b) => a.path.split('{').length - b.path.split('{').length)[0];
}

/** Expects a documented status, and a body that matches its schema without additional properties. */
export function expectDocumented(method: string, path: string, answer: Answer): void {
  expect(answer.headers.get('x-request-id'), 'every answer has a request id').toMatch(/^[\w.:-]+$/);
  const type = /^[^;]*/.exec(answer.headers.get('content-type') ?? '')![0];
  const found = findOperation(method, path);
  const { content = {} } = found?.operation.responses[answer.status] ?? {};
  if (answer.text !== '' && !(type in content)) expect(type).toBe('application/json');
  if (!found) {
    expect([200, 404, 405, 503], `${method} ${path} is not in openapi.json`).toContain(answer.status);
    if (answer.status !== 200) expectBody('#/components/schemas/ErrorResponse', answer);
    return;
  }
  const response = found.operation.responses[answer.status];
  expect(
    response,
    `${method} ${path} answered ${answer.status}, which is not documented: ${answer.text}`,
  ).toBeDefined();
  if (type !== 'application/json' && type in content) return;
  if (answer.status === 304) {
    expect(answer.text).toBe('');
    return;
  }
  const pointer = ['paths', found.path, method.toLowerCase(), 'responses', String(answer.status)]
    .concat('content', 'application/json', 'schema')
    .map((part) => encodeURIComponent(part.replaceAll('~', '~0').replaceAll('/', '~1')))
    .join('/');
  expectBody(`#/${pointer}`, answer);
}

/** Whether the document allows the value. */
export function allows(component: string, value: unknown): boolean {
  return ajv.validate(`openapi#/components/schemas/${component}`, value);
}

function expectBody(reference: string, answer: Answer): void {
  const validate = ajv.getSchema(`openapi${reference}`);
  if (!validate) throw new Error(`openapi.json has no ${reference}`);
  const valid = validate(answer.body);
  expect(validate.errors ?? [], answer.text.slice(0, 2000)).toEqual([]);
  expect(valid).toBe(true);
}
