import { inlineOpenapi } from './inline-openapi.js';

/** The types of the console, made from openapi.json: each named schema, and each operation by its method and path. */

export interface Schema {
  $ref?: string;
  type?: string | string[];
  enum?: unknown[];
  const?: unknown;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: boolean | Schema;
  patternProperties?: Record<string, Schema>;
  description?: string;
  default?: unknown;
  minimum?: number;
  'x-no-effect'?: string;
}

interface Operation {
  operationId?: string;
  parameters?: { name: string; in: string; required?: boolean; schema: Schema }[];
  requestBody?: { required?: boolean; content: Record<string, { schema?: Schema }> };
  responses: Record<string, { content?: Record<string, { schema?: Schema }> }>;
}

export interface OpenApi {
  components: { schemas: Record<string, Schema> };
  paths: Record<string, Record<string, Operation>>;
}

export function consoleTypes(shared: OpenApi): string {
  const api = inlineOpenapi(shared);
  const schemas = Object.entries(api.components.schemas).map(
    ([name, schema]) => `export type ${name} = ${typeOf(schema)};`,
  );
  const operations = Object.entries(api.paths).flatMap(([path, methods]) =>
    Object.entries(methods)
      .filter(([, operation]) => operation.operationId !== undefined)
      .map(([method, operation]) => `'${method.toUpperCase()} ${path}': ${operationType(operation)};`),
  );
  return [
    '// Made from openapi.json by "npm run generate".',
    ...schemas,
    `export interface Operations { ${operations.join('\n')} }`,
  ].join('\n\n');
}

function operationType(operation: Operation): string {
  const parameters = (place: string) =>
    (operation.parameters ?? [])
      .filter((parameter) => parameter.in === place)
      .map(({ name, required, schema }) => `${key(name)}${required ? '' : '?'}: ${typeOf(schema)};`);
  const body = operation.requestBody?.content['application/json']?.schema;
  const answer = Object.entries(operation.responses).find(([status]) => status.startsWith('2'))?.[1];
  const json = answer?.content?.['application/json']?.schema;
  return `{
    path: { ${parameters('path').join(' ')} };
    query: { ${parameters('query').join(' ')} };
    body: ${body === undefined ? 'undefined' : typeOf(body)};
    answer: ${json === undefined ? 'undefined' : typeOf(json)};
  }`;
}

function typeOf(schema: Schema): string {
  if (schema.$ref !== undefined) return schema.$ref.slice(schema.$ref.lastIndexOf('/') + 1);
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum !== undefined) return schema.enum.map((value) => JSON.stringify(value)).join(' | ');
  const variants = schema.anyOf ?? schema.oneOf;
  if (variants !== undefined) return `(${variants.map(typeOf).join(' | ')})`;
  if (schema.allOf !== undefined) return `(${schema.allOf.map(typeOf).join(' & ')})`;
  const types = [schema.type ?? []].flat();
  if (types.length === 0) return schema.properties === undefined ? 'unknown' : objectType(schema);
  return types.map((type) => plainType(type, schema)).join(' | ');
}

function plainType(type: string, schema: Schema): string {
  if (type === 'object') return objectType(schema);
  if (type === 'array') return `(${schema.items === undefined ? 'unknown' : typeOf(schema.items)})[]`;
  return type === 'integer' ? 'number' : type;
}

function objectType(schema: Schema): string {
  const required = new Set(schema.required);
  const fields = Object.entries(schema.properties ?? {}).map(
    ([name, field]) => `${key(name)}${required.has(name) ? '' : '?'}: ${typeOf(field)};`,
  );
  const extra = schema.additionalProperties;
  const pattern = Object.values(schema.patternProperties ?? {})[0];
  const values = pattern ?? (typeof extra === 'object' ? extra : undefined);
  if (fields.length > 0) return `{ ${fields.join(' ')} }`;
  return `Record<string, ${values === undefined ? 'unknown' : typeOf(values)}>`;
}

function key(name: string): string {
  return /^[a-z_]\w*$/i.test(name) ? name : `'${name}'`;
}
