/** The parts of the Helm chart that come from elsewhere in the repository, and the table of its values. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { V1PolicyRule } from '@kubernetes/client-node';
import { isMap, isScalar, parseDocument, stringify, type YAMLMap } from 'yaml';
import { keyOf } from '../src/config/names.js';
import type { Option } from '../src/options/option.js';
import { OPTION_NAMES, OPTIONS, type OptionName } from '../src/config/options.js';
import { PACKAGE_ROOT } from '../src/lib/package-root.js';
import { VERSION } from '../src/lib/version.js';
import { manifest } from '../src/engines/kubernetes/manifest.js';
import type { NamespaceChoice } from '../src/engines/kubernetes/namespace-choices.js';

const CHART = 'deploy/helm/sandkeep';
const ORGANIZATION_ROLE = '{{ .Release.Namespace }}-{{ include "sandkeep.fullname" . }}-organization';
const BEGIN = '<!-- made from values.yaml by "npm run generate" -->';
const END = '<!-- end of the values -->';

/** Options that other values or Secrets set, and those of a machine with Docker. */
const SET_BY_CHART = new Set<OptionName>([
  ...([
    'config',
    'dataDir',
    'databaseUrl',
    'eventKeys',
    'eventKeysFile',
    'secretKeys',
    'secretKeysFile',
  ] as const),
  ...([
    'host',
    'port',
    'metricsPort',
    'metricsHost',
    'role',
    'advertiseUrl',
    'runtime',
    'drainSeconds',
    'tlsCert',
    'tlsKey',
    'previewHost',
    'previewPort',
    'previewTlsCert',
    'previewTlsKey',
  ] as const),
  ...(['kubeconfig', 'kubernetesContext', 'kubernetesNamespace', 'kubernetesNamespaces'] as const),
  ...([
    'kubernetesNetwork',
    'kubernetesRuntimeClass',
    'listenUnix',
    'listenUnixMode',
    'dockerSocket',
    'dockerNetwork',
    'dockerRuntime',
    'dockerAllow',
  ] as const),
]);

interface Schema {
  type?: string;
  enum?: string[];
  properties?: Record<string, Schema>;
  description?: string;
}

interface Value {
  path: string;
  meaning: string;
  value: unknown;
  schema: Schema;
}

const read = (path: string) => readFileSync(join(PACKAGE_ROOT, path), 'utf8');

/** Files by their path. */
export function helmChart(): Map<string, string> {
  const schema = JSON.parse(read(`${CHART}/values.schema.json`)) as Schema;
  const values = valuesIn(parseDocument(read(`${CHART}/values.yaml`)).contents as YAMLMap, schema);
  for (const { schema: own, meaning } of values) own.description = meaning;
  schema.properties!['config']!.properties = optionSchemas();
  return new Map([
    [`${CHART}/Chart.yaml`, withVersion(read(`${CHART}/Chart.yaml`))],
    [`${CHART}/README.md`, withValues(read(`${CHART}/README.md`), values)],
    [`${CHART}/values.schema.json`, JSON.stringify(schema)],
    [`${CHART}/files/alerts.yaml`, read('deploy/prometheus/alerts.yaml')],
    [`${CHART}/files/dashboard.json`, read('deploy/grafana/sandkeep.json')],
    [`${CHART}/files/rules.yaml`, stringify(rules(), { lineWidth: 0 })],
  ]);
}

/** Helm fills in the namespaces and the name of the ClusterRole. */
function rules(): Record<string, V1PolicyRule[]> {
  const names = { namespace: '{{ include "sandkeep.sandboxNamespace" . }}', name: 'service' };
  const prefix = `${names.namespace}-${names.name}`;
  const rolesOf = (namespaces: NamespaceChoice, volumes: boolean) => {
    const items = manifest({ ...names, namespaces, nodes: true, volumes, activity: true });
    return (kind: string, name: string) => {
      const role = items.find((item) => item.kind === kind && item.metadata?.name === name);
      return (role as { rules?: V1PolicyRule[] } | undefined)?.rules ?? [];
    };
  };
  /** Those without volumes, and those that volumes add. */
  const parts = (namespaces: NamespaceChoice, kind: string, name: string) => {
    const without = rolesOf(namespaces, false)(kind, name);
    return [without, rolesOf(namespaces, true)(kind, name).slice(without.length)] as const;
  };
  const shared = rolesOf('shared', true);
  const [sandboxes, volumes] = parts('shared', 'Role', names.name);
  const apart = 'each-organization';
  const [organization, organizationVolumes] = parts(apart, 'ClusterRole', `${prefix}-organization`);
  const [organizations, organizationsVolumes] = parts(apart, 'ClusterRole', `${prefix}-organizations`);
  const rules = {
    sandboxes,
    volumes,
    nodes: shared('ClusterRole', `${prefix}-nodes`),
    nodeLeases: shared('Role', prefix),
    activity: shared('ClusterRole', `${prefix}-activity`),
    first: rolesOf(apart, true)('Role', names.name),
    organization,
    organizationVolumes,
    organizations,
    organizationsVolumes,
  };
  return JSON.parse(
    JSON.stringify(rules).replaceAll(
      JSON.stringify(`${prefix}-organization`),
      JSON.stringify(ORGANIZATION_ROLE),
    ),
  ) as Record<string, V1PolicyRule[]>;
}

function optionSchemas(): Record<string, Schema> {
  const names = OPTION_NAMES.filter((name) => !SET_BY_CHART.has(name));
  return Object.fromEntries(
    names.map((name) => {
      const { description, type }: Option = OPTIONS[name];
      return [keyOf(name), { description: `${description}: ${type.form}` }];
    }),
  );
}

/** Throws when the values and their schema differ, or when a value has no comment. */
function valuesIn(map: YAMLMap, { properties = {} }: Schema, parent = ''): Value[] {
  const missing = new Set(Object.keys(properties));
  // For charts that have this one as a part.
  if (parent === '') missing.delete('global');
  const found = map.items.flatMap((pair, index): Value[] => {
    if (!isScalar(pair.key)) throw new Error(`values.yaml: a key of ${parent} is no text`);
    const name = String(pair.key.value);
    const path = `${parent}${name}`;
    const schema = properties[name];
    if (!schema) throw new Error(`values.schema.json lacks ${path}`);
    missing.delete(name);
    if (isMap(pair.value) && schema.properties && pair.value.items.length > 0) {
      return valuesIn(pair.value, schema, `${path}.`);
    }
    const comment = pair.key.commentBefore ?? (index === 0 ? map.commentBefore : undefined);
    if (!comment) throw new Error(`values.yaml: ${path} has no comment`);
    const value = (pair.value as { toJSON(): unknown } | null)?.toJSON();
    return [
      {
        path,
        schema,
        value,
        meaning: comment
          .split('\n')
          .map((line) => line.trim())
          .join(' '),
      },
    ];
  });
  if (missing.size > 0) throw new Error(`values.yaml lacks ${parent}${[...missing].join(', ')}`);
  return found;
}

function withValues(page: string, values: readonly Value[]): string {
  const [before, rest] = page.split(BEGIN);
  const after = rest?.split(END)[1];
  if (after === undefined) throw new Error(`${CHART}/README.md lacks the marks ${BEGIN} and ${END}`);
  const rows = values.map(({ path, value, meaning }) => {
    const shown = value === '' ? '' : `\`${JSON.stringify(value)}\``;
    return `| \`${path}\` | ${shown} | ${meaning.replaceAll('|', '\\|').replaceAll('<', '&lt;')} |`;
  });
  const table = ['| value | default | meaning |', '| --- | --- | --- |', ...rows].join('\n');
  return `${before}${BEGIN}\n\n${table}\n\n${END}${after}`;
}

/** The chart has the version of the service. */
function withVersion(chart: string): string {
  return chart
    .replace(/^version: .*$/m, `version: ${VERSION}`)
    .replace(/^appVersion: .*$/m, `appVersion: ${VERSION}`);
}
