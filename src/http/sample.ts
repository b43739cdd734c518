/** Makes the shape of a valid value from its schema, for refusals. */

interface Schema {
  type?: string | string[];
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  anyOf?: Schema[];
  oneOf?: Schema[];
  const?: unknown;
  enum?: unknown[];
  examples?: unknown[];
  minimum?: number;
  default?: unknown;
  additionalProperties?: unknown;
}

/** A message has one line, which a person reads. */
const LONGEST = 300;

/** The shortest valid value of a schema as JSON: its required fields, with `…` for a text without an example. */
export function sampleText(schema: object): string | undefined {
  const sample = sampleOf(schema);
  const text = sample === undefined ? undefined : spaced(sample);
  return text === undefined || text.length > LONGEST ? undefined : text;
}

/** A sample of each form of a choice, without null. */
export function formTexts(schema: object): string[] {
  const { anyOf, oneOf } = schema as Schema;
  return (anyOf ?? oneOf ?? []).flatMap((form) => {
    if (form.type === 'null') return [];
    return sampleText(form) ?? [];
  });
}

/** The words that choose a form of a choice with a discriminator. */
export function variantNames(schema: object, key: string): unknown[] {
  return ((schema as Schema).oneOf ?? []).flatMap(({ properties = {} }) => {
    const named = properties[key] ?? {};
    return 'const' in named ? [named.const] : (named.enum ?? []);
  });
}

function sampleOf(schema: Schema): unknown {
  if (schema.examples !== undefined) return schema.examples[0];
  if ('const' in schema) return schema.const;
  if (schema.enum !== undefined) return schema.enum[0];
  const choice = (schema.anyOf ?? schema.oneOf ?? []).find(({ type }) => type !== 'null');
  if (choice !== undefined) return sampleOf(choice);
  switch ([schema.type].flat()[0]) {
    case 'object':
      return sampleOfObject(schema);
    case 'array':
      return schema.items === undefined ? [] : [sampleOf(schema.items)];
    case 'integer':
    case 'number':
      return schema.default ?? Math.max(schema.minimum ?? 0, 1);
    case 'boolean':
      return schema.default ?? true;
    case 'string':
      return '…';
    default:
      return undefined;
  }
}

/** The required fields. Without any, the first two. */
function sampleOfObject({ properties = {}, required = [], additionalProperties }: Schema): unknown {
  const entries = Object.entries(properties);
  const shown =
    required.length > 0 ? entries.filter(([name]) => required.includes(name)) : entries.slice(0, 2);
  if (entries.length === 0 && typeof additionalProperties === 'object') return { '…': '…' };
  return Object.fromEntries(shown.map(([name, property]) => [name, sampleOf(property)]));
}

/** JSON on one line, with spaces as a person writes it. */
function spaced(value: unknown): string {
  return JSON.stringify(value, null, 1)
    .replaceAll(/\n */g, ' ')
    .replaceAll(/([[{]) | ([\]}])/g, '$1$2');
}
