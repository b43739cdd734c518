/** The fields of the console's form that creates a sandbox, made from the schema of the request. */
import type { OpenApi, Schema } from './console-types.js';

interface FormField {
  path: string[];
  kind: 'text' | 'number' | 'boolean' | 'choice' | 'labels' | 'variables' | 'words';
  description: string;
  isRequired: boolean;
  choices?: unknown[];
  default?: unknown;
  minimum?: number;
}

/** Fields with lists of objects have no form: the JSON of the request has them. */
export function createFields(api: OpenApi): string {
  const { schemas } = api.components;
  const request = schemas['CreateSandboxRequest']!;
  // Clients may replace `image` by one of the other three. The form has `image`.
  const { source: _, reference: __, disk_snapshot_ref: ___, ...properties } = request.properties!;
  const form = { ...request, properties: { ...properties, image: schemas[OCI_IMAGE]! } };
  return JSON.stringify(fieldsOf(form, [], schemas));
}

/** The form starts a sandbox from an image of a registry. A sandbox from a snapshot begins at the snapshot. */
const OCI_IMAGE = 'CloudRootfsSourceOci';

function fieldsOf(schema: Schema, path: string[], schemas: Record<string, Schema>): FormField[] {
  return Object.entries(schema.properties ?? {}).flatMap(([name, field]) => {
    const target =
      field.$ref === undefined ? field : schemas[field.$ref.slice(field.$ref.lastIndexOf('/') + 1)]!;
    const here = [...path, name];
    const kind = kindOf(target, name);
    if (kind === undefined) {
      return target.properties === undefined || name === 'network' ? [] : fieldsOf(target, here, schemas);
    }
    if (target.enum?.length === 1) return [];
    return [
      {
        path: here,
        kind,
        description: target.description ?? '',
        isRequired: schema.required?.includes(name) ?? false,
        ...(target.enum === undefined ? {} : { choices: target.enum }),
        ...(target.default === undefined ? {} : { default: target.default }),
        ...(target.minimum === undefined ? {} : { minimum: target.minimum }),
      },
    ];
  });
}

function kindOf(schema: Schema, name: string): FormField['kind'] | undefined {
  if (schema['x-no-effect'] !== undefined) return undefined;
  if (schema.enum !== undefined) return 'choice';
  const types = new Set([schema.type ?? []].flat());
  if (types.has('boolean')) return 'boolean';
  if (types.has('integer') || types.has('number')) return 'number';
  if (types.has('string')) return 'text';
  if (name === 'labels') return 'labels';
  if (name === 'env') return 'variables';
  if (types.has('array') && schema.items?.type === 'string') return 'words';
  return undefined;
}
