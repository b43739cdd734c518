import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import canonicalize from 'canonicalize';
import { expect, onTestFinished, test } from 'vitest';
import { parse } from 'yaml';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { manifest } from '../../src/engines/kubernetes/manifest.js';
import { run, runJson } from '../support/cli.js';
import {
  CHART,
  describeHelm,
  helm,
  HELM_DIRECTORY,
  only,
  refusal,
  render,
  valuesFile,
  type Rendered,
} from '../support/helm.js';
import { openSchemas } from '../support/kubernetes-schemas.js';

const SETS = readdirSync(join(PACKAGE_ROOT, 'test', 'deploy', 'chart-values')).map((file) =>
  file.replace('.yaml', ''),
);
const LEAST = ['database.existingSecret=a', 'keys.existingSecret=b'];
const read = (...path: string[]) => readFileSync(join(PACKAGE_ROOT, ...path), 'utf8');
const podsOf = (objects: readonly Rendered[]) =>
  objects.flatMap(({ kind, spec }) => (kind === 'Pod' ? [spec] : (spec?.template?.spec ?? [])));

describeHelm('the Helm chart', () => {
  test.each(SETS)('has no faults with the values %s', (values) => {
    const { status, out } = helm(['lint', '--strict', '--quiet', CHART, '--values', valuesFile(values)]);
    expect(status, out).toBe(0);
  });

  test('renders objects that the current Kubernetes and the Prometheus operator know', () => {
    const faultsOf = openSchemas(HELM_DIRECTORY);
    for (const values of SETS) expect(render({ values }).flatMap(faultsOf), values).toEqual([]);
    const wrong = only(render({ values: 'external' }), 'Deployment');
    wrong['spec'].replica = 2;
    delete wrong['spec'].selector;
    expect(faultsOf(wrong).toSorted()).toEqual([
      expect.stringContaining('/spec must NOT have additional properties {"additionalProperty":"replica"}'),
      expect.stringContaining('/spec must have required property'),
    ]);
  });

  test('gives the service the rights of "sandkeep kubernetes manifest", and no others', async () => {
    const described = (objects: readonly Rendered[]) =>
      objects
        .filter(({ kind }) => /^(Cluster)?Role(Binding)?$/.test(kind!))
        .map(({ kind, metadata: { name, namespace } = {}, rules, subjects, roleRef }) =>
          String(canonicalize({ kind, name, namespace, rules, subjects, roleRef })),
        );
    const rights = ['nodes', 'volumes', 'activity'] as const;
    const { items: all } = await runJson(['kubernetes', 'manifest', '--namespace', 'one', '--activity']);
    for (const namespaces of ['shared', 'each-organization'] as const)
      for (const left of [[], ['nodes'], ['volumes'], ['nodes', 'volumes', 'activity']]) {
        const [nodes, volumes, activity] = rights.map((right) => !left.includes(right)) as [
          boolean,
          boolean,
          boolean,
        ];
        const items =
          left.length === 0 && namespaces === 'shared'
            ? all
            : manifest({ namespace: 'one', name: 'sandkeep', namespaces, nodes, volumes, activity });
        const values = [`nodes=${nodes}`, `volumes=${volumes}`, `activity=${activity}`];
        const set = [
          ...LEAST,
          'sandboxes.namespace=one',
          `sandboxes.namespaces=${namespaces}`,
          ...values.map((value) => `rbac.${value}`),
        ];
        expect(described(render({ set, namespace: 'one' })).toSorted()).toEqual(
          described(items as Rendered[]).toSorted(),
        );
      }
    const apart = render({ set: LEAST });
    const role = only(apart, 'Role');
    expect(role.metadata?.namespace).toBe('prod-sandboxes');
    expect(role['rules'][0]).toMatchObject({ resources: ['namespaces'], resourceNames: ['prod-sandboxes'] });
    expect(only(apart, 'RoleBinding')['subjects']).toEqual([
      { kind: 'ServiceAccount', name: 'sandkeep', namespace: 'prod' },
    ]);
    expect(only(apart, 'Namespace', 'prod-sandboxes').metadata?.annotations).toMatchObject({
      'helm.sh/resource-policy': 'keep',
    });
  });

  test('has the alerts and the dashboard of the repository', () => {
    const objects = render({ values: 'prometheus-operator' });
    expect(only(objects, 'PrometheusRule')['spec']).toEqual(
      parse(read('deploy', 'prometheus', 'alerts.yaml')),
    );
    const { data } = only(objects, 'ConfigMap', 'sandkeep-dashboard');
    expect(JSON.parse(data['sandkeep.json'])).toEqual(JSON.parse(read('deploy', 'grafana', 'sandkeep.json')));
    const { spec } = only(objects, 'ServiceMonitor');
    const service = only(objects, 'Service', 'sandkeep-metrics');
    expect(service.metadata?.labels).toMatchObject(spec.selector.matchLabels);
    expect(spec.endpoints[0]).toMatchObject({ port: service['spec'].ports[0].name });
  });

  test.each(['external', 'embedded', 'everything'])(
    'starts a service that accepts its options, with the values %s',
    async (values) => {
      const objects = render({ values });
      const folder = mkdtempSync(join(tmpdir(), 'sandkeep-chart-'));
      onTestFinished(() => rmSync(folder, { recursive: true }));
      const file = join(folder, 'sandkeep.yaml');
      writeFileSync(file, only(objects, 'ConfigMap')['data']['sandkeep.yaml']);
      const key = Buffer.alloc(32).toString('base64');
      const secrets: Record<string, string> = {
        DATABASE_URL: 'postgres://user@host/database',
        SANDKEEP_EVENT_KEYS: key,
        SANDKEEP_SECRET_KEYS: key,
      };
      for (const pod of podsOf(objects)) {
        const [{ env }] = pod.containers;
        // The Pod of "helm test" is no service.
        if (env === undefined) continue;
        const given = (env as { name: string; value?: string }[]).map(({ name, value }) => {
          const address = value?.includes('[$(') ? 'fd00::5' : '10.0.0.5';
          return [name, value?.replace('$(POD_IP)', address) ?? secrets[name] ?? ''] as const;
        });
        const { code, err } = await run(['config', 'check'], {
          env: { ...Object.fromEntries(given), SANDKEEP_CONFIG: file, SANDKEEP_DATA_DIR: folder },
        });
        expect({ code, err }).toEqual({ code: 0, err: '' });
      }
    },
  );

  test('runs as no user with rights, and lets no Pod write to its image', () => {
    for (const values of SETS) {
      for (const { securityContext, containers } of podsOf(render({ values }))) {
        expect(securityContext).toMatchObject({
          runAsNonRoot: true,
          fsGroupChangePolicy: 'OnRootMismatch',
          seccompProfile: { type: 'RuntimeDefault' },
        });
        expect(containers[0].securityContext).toEqual({
          allowPrivilegeEscalation: false,
          readOnlyRootFilesystem: true,
          capabilities: { drop: ['ALL'] },
        });
      }
    }
  });

  test('splits the roles, and routes requests to processes that answer them', () => {
    const objects = render({ set: [...LEAST, 'worker.separate=true'] });
    const roleOf = (name: string) =>
      only(objects, 'Deployment', name)['spec'].template.spec.containers[0].env.find(
        (each: { name: string }) => each.name === 'SANDKEEP_ROLE',
      ).value;
    expect([roleOf('sandkeep'), roleOf('sandkeep-worker')]).toEqual(['api', 'worker']);
    const { selector } = only(objects, 'Service')['spec'];
    const labelsOf = (name: string) => only(objects, 'Deployment', name)['spec'].template.metadata.labels;
    expect(labelsOf('sandkeep')).toMatchObject(selector);
    expect(labelsOf('sandkeep-worker')).not.toMatchObject(selector);
    expect(only(objects, 'Pod', 'sandkeep-test').metadata?.labels).not.toMatchObject(selector);
    for (const budget of objects.filter(({ kind }) => kind === 'PodDisruptionBudget')) {
      const { matchLabels } = budget['spec'].selector;
      expect(labelsOf(budget.metadata!.name!)).toMatchObject(matchLabels);
    }
  });

  test.each([
    ['no database', [], 'set embedded.enabled=true'],
    ['no keys', LEAST.slice(0, 1), 'kubectl --namespace prod create secret generic sandkeep-keys'],
    ['two databases', [...LEAST, 'embedded.enabled=true'], 'choose one database'],
    [
      'workers beside the embedded database',
      ['embedded.enabled=true', 'worker.separate=true'],
      'one process',
    ],
    [
      'a namespace with a long name',
      [
        ...LEAST,
        'sandboxes.namespaces=each-organization',
        'sandboxes.namespace=a-name-of-twenty-seven-chars',
      ],
      'at most 26 characters',
    ],
    ['a short end', [...LEAST, 'drainSeconds=40'], 'terminationGracePeriodSeconds'],
    ['an unknown value', [...LEAST, 'replica=2'], 'replica'],
    ['an unknown option', [...LEAST, 'config.rate-limits=2'], 'rate-limits'],
    ['an option of the chart', [...LEAST, 'config.port=2'], 'port'],
    ['an unknown runtime', [...LEAST, 'runtime=docker'], 'runtime'],
  ])('refuses %s, and names the remedy', (_, set, words) => {
    expect(refusal({ set })).toContain(words);
  });
});
