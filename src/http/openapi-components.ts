import { DOCUMENTED, RESTRICTIONS } from './schema.js';

type Json = { [key: string]: unknown };

interface Response {
  description?: string;
  headers?: Json;
  content?: Json;
}

interface Operation {
  operationId?: string;
  parameters?: Json[];
  responses?: Record<string, Response>;
}

const HEADERS = {
  'x-request-id': {
    description:
      'The id of the request, as in the log of the service. A sane `x-request-id` of the client is kept.',
    schema: { type: 'string', pattern: '^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$' },
  },
  RateLimit: {
    description:
      'The units that the key has left, and the seconds until it has all again (draft-ietf-httpapi-ratelimit-headers). Absent where the operator has set no rate.',
    schema: { type: 'string' },
  },
  'RateLimit-Policy': {
    description: 'The units that the key may use, and their window in seconds.',
    schema: { type: 'string' },
  },
  'Retry-After': {
    description: 'The seconds after which a repetition is likely to succeed.',
    schema: { type: 'integer', minimum: 0 },
  },
} as const;

/** The statuses whose answers may say when to try again. */
const RETRIED = new Set(['429', '503', '507']);

/** Moves every schema with a title, and every answer and parameter of several operations, into `components`. */
export function withComponents<T extends { paths?: object; components?: object }>(document: T): T {
  const schemas: Json = {};
  const paths = withSchemas(document.paths, schemas) as Record<string, Record<string, Operation>>;
  const operations = Object.values(paths).flatMap((methods) => Object.values(methods));
  for (const operation of operations) describeHeaders(operation);
  const responses = shareResponses(operations);
  const parameters = shareParameters(operations);
  const components = {
    ...document.components,
    schemas: sorted(schemas),
    responses: sorted(responses),
    parameters: sorted(parameters),
    headers: HEADERS,
  };
  return { ...document, paths, components };
}

function withSchemas(root: unknown, schemas: Json): unknown {
  const variantNames = new Set<string>();
  return visit(root);

  function visit(value: unknown): unknown {
    if (Array.isArray(value)) return value.map(visit);
    if (typeof value !== 'object' || value === null) return value;
    const node: Json = Object.fromEntries(Object.entries(value).map(([key, item]) => [key, visit(item)]));
    // Callers read the rule of restrictions in the descriptions.
    const { title, $comment: description, [DOCUMENTED]: more, [RESTRICTIONS]: _, ...rest } = node;
    const schema: Json = { ...rest, ...(more as Json | undefined) };
    if (more !== undefined && 'properties' in rest) {
      schema['properties'] = { ...(rest['properties'] as Json), ...((more as Json)['properties'] as Json) };
    }
    if (typeof title !== 'string' || !isSchema(schema)) {
      // `$comment` and `title` of other objects are fields.
      return more === undefined ? node : { ...schema, ...named({ title, $comment: description }) };
    }
    if (variantNames.has(title)) throw new Error(`a variant and a schema have the name ${title}`);
    schemas[title] ??= withNamedVariants(title, schema);
    const reference = { $ref: `#/components/schemas/${title}` };
    return description === undefined ? reference : { ...reference, description };
  }

  /** Code generators name variants by their number, where they have no name. */
  function withNamedVariants(title: string, schema: Json): Json {
    const key = 'oneOf' in schema ? 'oneOf' : 'anyOf';
    const variants = schema[key] as Json[] | undefined;
    if (variants === undefined) return schema;
    const { propertyName } = (schema['discriminator'] ?? {}) as { propertyName?: string };
    const mapping: Record<string, string> = {};
    const references = variants.map((variant) => {
      if (variant['type'] !== 'object') return variant;
      const words = propertyName === undefined ? [] : wordsOf(variant, propertyName);
      const [only, ...others] = (variant['required'] ?? []) as string[];
      const suffix = words[0] ?? (only !== undefined && others.length === 0 ? `by_${only}` : undefined);
      if (suffix === undefined) return variant;
      const name = `${title}${pascal(`_${suffix}`)}`;
      variantNames.add(name);
      schemas[name] = variant;
      const $ref = `#/components/schemas/${name}`;
      for (const each of words) mapping[each] = $ref;
      return { $ref };
    });
    if (propertyName === undefined) return { ...schema, [key]: references };
    return { ...schema, [key]: references, discriminator: { propertyName, mapping } };
  }
}

/** The values of the discriminator that name a variant. */
function wordsOf({ properties }: Json, propertyName: string): string[] {
  const field = (properties as Record<string, { const?: string; enum?: string[] }>)[propertyName];
  return field?.enum ?? (field?.const === undefined ? [] : [field.const]);
}

function describeHeaders(operation: Operation): void {
  const header = (name: keyof typeof HEADERS) => ({ [name]: { $ref: `#/components/headers/${name}` } });
  for (const [status, response] of Object.entries(operation.responses ?? {})) {
    response.headers = {
      ...header('x-request-id'),
      // Without a key there is nothing to count.
      ...(status === '401' ? {} : { ...header('RateLimit'), ...header('RateLimit-Policy') }),
      ...(RETRIED.has(status) ? header('Retry-After') : {}),
      ...response.headers,
    };
  }
}

/** Replaces the refusals that several operations have by references. Their names are their codes. */
function shareResponses(operations: readonly Operation[]): Json {
  const shared: Json = {};
  const uses = countOf(
    operations.flatMap(({ responses = {} }) =>
      Object.entries(responses).map(([status, response]) => [status, response]),
    ),
  );
  for (const { operationId = '', responses = {} } of operations) {
    for (const [status, response] of Object.entries(responses)) {
      if (Number(status) < 400 || uses.get(keyOf([status, response]))! < 2) continue;
      const codes = [...(response.description ?? '').matchAll(/`(\w+)`/g)].map(([, code]) => pascal(code!));
      const name = codes.join('Or');
      const longer = pascal(operationId) + name;
      const $ref = `#/components/responses/${nameFor(shared, name, response, longer)}`;
      responses[status] = { $ref } as Response;
    }
  }
  return shared;
}

function shareParameters(operations: readonly Operation[]): Json {
  const shared: Json = {};
  const uses = countOf(operations.flatMap(({ parameters = [] }) => parameters));
  for (const operation of operations) {
    if (operation.parameters === undefined) continue;
    operation.parameters = operation.parameters.map((parameter) => {
      if (uses.get(keyOf(parameter))! < 2) return parameter;
      const name = pascal(parameter['name'] as string);
      const longer = pascal(operation.operationId ?? '') + name;
      return { $ref: `#/components/parameters/${nameFor(shared, name, parameter, longer)}` };
    });
  }
  return shared;
}

/** The name under which a component is shared. `longer`: for another component of the same name. */
function nameFor(shared: Json, name: string, component: unknown, longer: string): string {
  const text = keyOf(component);
  const known = Object.entries(shared).find(([, other]) => keyOf(other) === text);
  if (known) return known[0];
  const free = [name, longer].find((candidate) => !(candidate in shared));
  if (free === undefined) throw new Error(`two components have the name ${longer}`);
  shared[free] = component;
  return free;
}

function countOf(items: readonly unknown[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const item of items) counts.set(keyOf(item), (counts.get(keyOf(item)) ?? 0) + 1);
  return counts;
}

const keyOf = (value: unknown): string => JSON.stringify(value);

function sorted(record: Json): Json {
  return Object.fromEntries(Object.entries(record).toSorted(([a], [b]) => (a < b ? -1 : 1)));
}

function pascal(word: string): string {
  return word.replaceAll(/(?:^|[^a-zA-Z0-9]+)([a-zA-Z0-9])/g, (_, letter: string) => letter.toUpperCase());
}

function named(fields: Json): Json {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}

function isSchema(node: Json): boolean {
  return ['type', 'anyOf', 'oneOf', 'enum'].some((key) => key in node);
}
