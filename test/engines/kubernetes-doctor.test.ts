import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { manifest } from '../../src/engines/kubernetes/manifest.js';
import { ProbeLease } from '../../src/engines/kubernetes/network/probe-lease.js';
import { notEnforced } from '../../src/engines/kubernetes/network/findings.js';
import { examineCluster } from '../../src/engines/kubernetes/examine.js';
import { run } from '../support/cli.js';
import { recordRights } from '../support/cluster-requests.js';
import { describeKubernetes, openNamespace, type TestNamespace } from '../support/kubernetes.js';
import { until } from '../support/polling.js';

describe('doctor without a usable cluster', () => {
  let folder: string;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'sandkeep-doctor-'));
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  const clusterOf = async (...args: string[]) => {
    const where = ['--data-dir', join(folder, 'none'), '--runtime', 'kubernetes'];
    const { code, out } = await run(['doctor', '--json', ...where, ...args]);
    const findings = JSON.parse(out) as { check: string; state: string; found: string; remedy?: string }[];
    expect(findings.map(({ check }) => check)).not.toContain('docker');
    return { code, ...findings.find(({ check }) => check === 'cluster')! };
  };

  test('names a kubeconfig that cannot be read', async () => {
    const file = join(folder, 'absent');
    expect(await clusterOf('--kubeconfig', file)).toMatchObject({
      code: 1,
      state: 'broken',
      found: expect.stringContaining(`cannot read the kubeconfig ${file}`),
      remedy: expect.stringContaining('kubectl'),
    });
  });

  test('names an API server that does not answer', async () => {
    const file = join(folder, 'kubeconfig');
    const config = {
      apiVersion: 'v1',
      kind: 'Config',
      'current-context': 'a',
      clusters: [{ name: 'a', cluster: { server: 'http://127.0.0.1:1' } }],
      users: [{ name: 'a', user: {} }],
      contexts: [{ name: 'a', context: { cluster: 'a', user: 'a' } }],
    };
    writeFileSync(file, JSON.stringify(config));
    expect(await clusterOf('--kubeconfig', file)).toMatchObject({
      code: 1,
      state: 'broken',
      found: expect.stringMatching(/^the cluster does not answer/),
    });
  });
});

describeKubernetes('doctor with a cluster', () => {
  const NAME = 'sandkeep';
  let namespace: TestNamespace;
  beforeAll(async () => {
    namespace = await openNamespace();
  });
  afterAll(() => namespace.remove());

  const optionsFor = (kubeconfig: string | undefined) => ({
    kubeconfig,
    kubernetesContext: undefined,
    kubernetesNamespace: namespace.namespace,
    kubernetesNamespaces: 'shared' as const,
    kubernetesNetwork: 'probe' as const,
  });
  const byCheck = async (kubeconfig: string | undefined, instanceId?: string) => {
    const findings = await examineCluster(optionsFor(kubeconfig), instanceId);
    return Object.fromEntries(findings.map(({ check, ...finding }) => [check, finding]));
  };

  test('names each right that the account lacks, and changes nothing', async () => {
    const api = namespace.library.KubernetesObjectApi.makeApiClient(namespace.config);
    const items = manifest({
      namespace: namespace.namespace,
      name: NAME,
      nodes: false,
      volumes: false,
      activity: false,
    });
    const role = items.find(({ kind }) => kind === 'Role') as { rules: { resources: string[] }[] };
    role.rules = role.rules.filter(({ resources }) => !resources.includes('secrets'));
    const applied = items.filter(({ kind }) => kind !== 'Namespace');
    for (const item of applied) await api.create(item);
    const { status } = await namespace.core.createNamespacedServiceAccountToken({
      name: NAME,
      namespace: namespace.namespace,
      body: { spec: { audiences: [] } },
    });
    const proxy = await recordRights(namespace, status!.token);
    try {
      // The API server reads new roles and bindings a moment later.
      const found = await until(
        () => byCheck(proxy.kubeconfig),
        (all) => !all['rights']!.found.includes('pods'),
      );
      expect(found['cluster']).toMatchObject({
        state: 'ok',
        found: expect.stringMatching(/^Kubernetes v\d+\./),
      });
      expect(found['rights']).toEqual({
        state: 'broken',
        found: `the account may not: ${['create', 'delete', 'list'].map((verb) => `${verb} secrets in ${namespace.namespace}`).join('; ')}`,
        remedy: `sandkeep kubernetes manifest --namespace ${namespace.namespace} | kubectl apply -f -`,
      });
      expect(proxy.refused).toEqual([]);
      const apart = { ...optionsFor(proxy.kubeconfig), kubernetesNamespaces: 'each-organization' as const };
      expect(await examineCluster(apart, undefined)).toContainEqual({
        check: 'rights',
        state: 'broken',
        found: `the namespace "${namespace.namespace}" has no RoleBinding "sandkeep-organization" that the account may read`,
        remedy: `sandkeep kubernetes manifest --namespace ${namespace.namespace} --namespaces each-organization | kubectl apply -f -`,
      });
      const written = [...proxy.used].filter(
        (right) =>
          / (create|update|patch|delete)$/.test(right) && !right.includes('selfsubjectaccessreviews'),
      );
      expect(written).toEqual([]);
    } finally {
      await proxy.close();
      for (const item of applied) await api.delete(item);
    }
  });

  test('tells the result of the latest probe of the network', async () => {
    const kubeconfig = process.env['KUBECONFIG'];
    expect((await byCheck(kubeconfig))['network']).toMatchObject({
      state: 'ok',
      found: expect.stringMatching(/^not known, as no database runs/),
    });
    const instanceId = 'doctor-test';
    expect((await byCheck(kubeconfig, instanceId))['network']!.found).toMatch(/^not known, as the service/);
    await new ProbeLease(namespace, instanceId, 'inputs').findings(async () =>
      Promise.resolve(notEnforced('a policy has no effect')),
    );
    const found = await until(
      () => byCheck(kubeconfig, instanceId),
      // A node that reports late is not ready for a while.
      ({ nodes }) => nodes?.state === 'ok',
    );
    expect(found).toMatchObject({
      rights: { state: 'ok', found: expect.stringMatching(/named volumes are kept as claims$/) },
      nodes: { state: 'ok', found: expect.stringMatching(/idle_timeout_secs is enforced$/) },
      network: {
        state: 'missing',
        found: expect.stringMatching(/^a policy has no effect, probed at .*Z: sandboxes are refused$/),
        remedy: expect.stringContaining('network plugin'),
      },
    });
  });
});
