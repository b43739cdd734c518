import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { KubernetesObject } from '@kubernetes/client-node';
import { Ajv, type ValidateFunction } from 'ajv';
import { parse } from 'yaml';

interface Schema {
  [keyword: string]: unknown;
  properties?: Record<string, Schema>;
  'x-kubernetes-group-version-kind'?: { group: string; version: string; kind: string }[];
}

interface CustomResourceDefinition {
  spec: {
    group: string;
    names: { kind: string };
    versions: { name: string; schema: { openAPIV3Schema: Schema } }[];
  };
}

/** Kubernetes accepts a number for a quantity. */
const LOOSE = new Set(['io.k8s.apimachinery.pkg.api.resource.Quantity']);

/** Returns the faults of an object by the OpenAPI documents in a directory. Unknown fields are faults. */
export function openSchemas(directory: string): (object: KubernetesObject) => string[] {
  const { definitions } = JSON.parse(readFileSync(join(directory, 'kubernetes.json'), 'utf8')) as {
    definitions: Record<string, Schema>;
  };
  const ajv = new Ajv({ strict: false, allErrors: true, validateFormats: false });
  const kinds = new Map<string, Schema>();
  for (const [name, schema] of Object.entries(definitions)) {
    closeObjects(schema);
    if (schema['format'] === 'int-or-string' || LOOSE.has(name)) schema['type'] = ['string', 'number'];
    for (const { group, version, kind } of schema['x-kubernetes-group-version-kind'] ?? []) {
      kinds.set(keyOf(group, version, kind), { $ref: `kubernetes#/definitions/${name}` });
    }
  }
  ajv.addSchema({ $id: 'kubernetes', definitions });
  for (const file of ['servicemonitors', 'prometheusrules']) {
    const { spec } = parse(readFileSync(join(directory, `${file}.yaml`), 'utf8')) as CustomResourceDefinition;
    for (const { name, schema } of spec.versions) {
      closeObjects(schema.openAPIV3Schema.properties!['spec']!);
      kinds.set(keyOf(spec.group, name, spec.names.kind), schema.openAPIV3Schema);
    }
  }
  const compiled = new Map<string, ValidateFunction>();
  return (object) => {
    const key = `${object.apiVersion} ${object.kind}`;
    const schema = kinds.get(key);
    if (!schema) return [`Kubernetes has no ${key}`];
    const validate = compiled.get(key) ?? ajv.compile(schema);
    compiled.set(key, validate);
    const isValid: boolean = validate(object);
    if (isValid) return [];
    return (validate.errors ?? []).map(
      ({ instancePath, message, params }) =>
        `${key} ${object.metadata?.name}: ${instancePath} ${message} ${JSON.stringify(params)}`,
    );
  };
}

function keyOf(group: string, version: string, kind: string): string {
  return `${group === '' ? '' : `${group}/`}${version} ${kind}`;
}

/** Objects take no other properties than those that their schema names. */
function closeObjects(schema: Schema): void {
  if (schema['x-kubernetes-int-or-string'] === true) delete schema['type'];
  // JavaScript has no such flag.
  if (String(schema['pattern']).includes('(?i)')) delete schema['pattern'];
  const parts = [...Object.values(schema.properties ?? {}), schema['items'], schema['additionalProperties']];
  for (const part of parts) if (typeof part === 'object' && part !== null) closeObjects(part as Schema);
  if (schema.properties && schema['x-kubernetes-preserve-unknown-fields'] !== true) {
    schema['additionalProperties'] ??= false;
  }
}
