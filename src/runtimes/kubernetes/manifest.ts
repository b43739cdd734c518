import type { KubernetesObject, V1PolicyRule, V1Role, V1RoleBinding } from '@kubernetes/client-node';
import type { Right } from './review-rights.js';

export interface ManifestOptions {
  namespace: string;
  /** The service account. Its roles have names that begin with it. */
  name: string;
  /** Capacity, admission by the size of nodes, and the loss of nodes. */
  nodes: boolean;
  /** Named volumes. */
  volumes: boolean;
  /** Idle time-outs. The right lets its holder into every container of the cluster. */
  activity: boolean;
}

const RBAC = 'rbac.authorization.k8s.io';
const CORE = '';
const NODE_LEASES = 'kube-node-lease';

const NODE_RULE = rule(CORE, ['nodes'], ['list', 'watch']);
const NODE_LEASE_RULE = rule('coordination.k8s.io', ['leases'], ['get']);
const ACTIVITY_RULE = rule(CORE, ['nodes/proxy'], ['get']);
const RULES: V1PolicyRule[] = [
  rule(CORE, ['pods'], ['create', 'delete', 'list', 'patch', 'watch']),
  rule(CORE, ['pods/log'], ['get']),
  // By WebSocket: "get" up to Kubernetes 1.34, and "create" too since.
  rule(CORE, ['pods/exec'], ['create', 'get']),
  rule(CORE, ['configmaps'], ['create']),
  rule(CORE, ['secrets'], ['create', 'delete', 'list']),
  rule('networking.k8s.io', ['networkpolicies'], ['create', 'delete', 'list', 'update']),
  rule('coordination.k8s.io', ['leases'], ['create', 'get', 'update']),
];
const CLAIMS = rule(CORE, ['persistentvolumeclaims'], ['create', 'delete', 'list', 'patch', 'watch']);

/** The namespace of sandboxes, and an account with the rights that the service uses. */
export function manifest({ namespace, name, nodes, volumes, activity }: ManifestOptions): KubernetesObject[] {
  const labels = { 'app.kubernetes.io/part-of': 'sandkeep' };
  const subjects = [{ kind: 'ServiceAccount', name, namespace }];
  const bound = (kind: 'Role' | 'ClusterRole', object: string, rules: V1PolicyRule[], where?: string) => {
    const metadata = { name: object, ...(where === undefined ? {} : { namespace: where }), labels };
    const role: V1Role = { apiVersion: `${RBAC}/v1`, kind, metadata, rules };
    const roleRef = { apiGroup: RBAC, kind, name: object };
    const binding: V1RoleBinding = {
      ...{ apiVersion: `${RBAC}/v1`, kind: `${kind}Binding` },
      ...{ metadata, subjects, roleRef },
    };
    return [role, binding];
  };
  return [
    { apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace, labels } },
    { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name, namespace, labels } },
    ...bound('Role', name, [namespaceRule(namespace), ...RULES, ...(volumes ? [CLAIMS] : [])], namespace),
    ...(nodes
      ? [
          ...bound('ClusterRole', `${namespace}-${name}-nodes`, [NODE_RULE]),
          ...bound('Role', `${namespace}-${name}`, [NODE_LEASE_RULE], NODE_LEASES),
        ]
      : []),
    ...(activity ? bound('ClusterRole', `${namespace}-${name}-activity`, [ACTIVITY_RULE]) : []),
  ];
}

/** The rights of the manifest, singly. */
export function rightsOf(namespace: string): Record<'needed' | 'nodes' | 'volumes' | 'activity', Right[]> {
  const [own] = singleRights(namespaceRule(namespace), namespace);
  return {
    needed: [{ ...own!, name: namespace }, ...RULES.flatMap((each) => singleRights(each, namespace))],
    nodes: [...singleRights(NODE_RULE, undefined), ...singleRights(NODE_LEASE_RULE, NODE_LEASES)],
    volumes: singleRights(CLAIMS, namespace),
    activity: singleRights(ACTIVITY_RULE, undefined),
  };
}

function singleRights(
  { apiGroups = [], resources = [], verbs }: V1PolicyRule,
  namespace: string | undefined,
): Right[] {
  return apiGroups.flatMap((group) =>
    resources.flatMap((resource) => verbs.map((verb) => ({ group, resource, verb, namespace }))),
  );
}

function namespaceRule(namespace: string): V1PolicyRule {
  return rule(CORE, ['namespaces'], ['get'], [namespace]);
}

function rule(apiGroup: string, resources: string[], verbs: string[], names?: string[]): V1PolicyRule {
  return {
    apiGroups: [apiGroup],
    resources,
    verbs,
    ...(names === undefined ? {} : { resourceNames: names }),
  };
}
