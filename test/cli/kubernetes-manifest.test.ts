import { expect, test } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { run, runJson } from '../support/cli.js';

const COMMAND = ['kubernetes', 'manifest'];
const kinds = (items: readonly { kind: string }[]) => items.map(({ kind }) => kind);

test('kubernetes manifest prints the same objects as YAML and as JSON', async () => {
  const list = await runJson([...COMMAND, '--namespace', 'boxes', '--name', 'control']);
  const { out } = await run([...COMMAND, '--namespace', 'boxes', '--name', 'control']);
  expect(parseAllDocuments(out).map((document): unknown => document.toJS())).toEqual(list.items);
  expect(kinds(list.items)).toEqual([
    'Namespace',
    'ServiceAccount',
    'Role',
    'RoleBinding',
    'ClusterRole',
    'ClusterRoleBinding',
    'Role',
    'RoleBinding',
  ]);
  const [, account, role, binding] = list.items;
  expect([account.metadata.name, account.metadata.namespace]).toEqual(['control', 'boxes']);
  expect(binding.subjects).toEqual([{ kind: 'ServiceAccount', name: 'control', namespace: 'boxes' }]);
  expect(binding.roleRef.name).toBe(role.metadata.name);
});

test('kubernetes manifest grants rights beyond the namespace only when they are asked for', async () => {
  const least = await runJson([...COMMAND, '--no-nodes']);
  expect(kinds(least.items)).toEqual(['Namespace', 'ServiceAccount', 'Role', 'RoleBinding']);
  const { items } = await runJson([...COMMAND, '--activity']);
  const resources = items.flatMap(({ rules = [] }: any) => rules.flatMap((rule: any) => rule.resources));
  expect(resources).toContain('nodes/proxy');
  expect(JSON.stringify(least)).not.toContain('nodes');
});

test('kubernetes manifest for a namespace of each organization reads no Secrets of the whole cluster', async () => {
  const { items } = await runJson([...COMMAND, '--namespace', 'boxes', '--namespaces', 'each-organization']);
  const bindings = items.filter(({ kind }: { kind: string }) => kind.endsWith('Binding'));
  const rolesBound = (kind: string) =>
    bindings.filter((each: any) => each.kind === kind).map(({ roleRef }: any) => roleRef.name);
  const resourcesOf = (names: readonly string[]) =>
    items
      .filter(({ kind, metadata }: any) => kind.endsWith('Role') && names.includes(metadata.name))
      .flatMap(({ rules }: any) => rules.flatMap(({ resources }: any) => resources));
  expect(rolesBound('ClusterRoleBinding')).toEqual(['boxes-sandkeep-organizations', 'boxes-sandkeep-nodes']);
  expect(resourcesOf(rolesBound('ClusterRoleBinding')).toSorted()).toEqual([
    'clusterroles',
    'namespaces',
    'nodes',
    'persistentvolumeclaims',
    'pods',
    'rolebindings',
  ]);
  expect(rolesBound('RoleBinding')).toContain('boxes-sandkeep-organization');
  expect(resourcesOf(['boxes-sandkeep-organization'])).toContain('secrets');
  const { code, err } = await run([...COMMAND, '--namespaces', 'every']);
  expect([code, err.includes('each-organization')]).toEqual([1, true]);
});

test('kubernetes manifest refuses a name that no namespace can have', async () => {
  const { code, out, err } = await run([...COMMAND, '--namespace', 'Two Words']);
  expect([code, out]).toEqual([1, '']);
  expect(err).toContain('It takes up to 52 lower-case letters');
});
