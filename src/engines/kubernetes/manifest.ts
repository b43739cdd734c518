import type { KubernetesObject, V1PolicyRule, V1Role, V1RoleBinding } from '@kubernetes/client-node';
import type { NamespaceChoice } from './namespace-choices.js';
import { ORGANIZATION_BINDING } from './names.js';
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
  /** Default: `shared`. */
  namespaces?: NamespaceChoice;
}

const RBAC = 'rbac.authorization.k8s.io';
const CORE = '';
const NODE_LEASES = 'kube-node-lease';

const NODE_RULE = rule(CORE, ['nodes'], ['list', 'watch']);
const NODE_LEASE_RULE = rule('coordination.k8s.io', ['leases'], ['get']);
const ACTIVITY_RULE = rule(CORE, ['nodes/proxy'], ['get']);
const IN_NAMESPACE: V1PolicyRule[] = [
  rule(CORE, ['pods/log'], ['get']),
  // By WebSocket: "get" up to Kubernetes 1.34, and "create" too since.
  rule(CORE, ['pods/exec'], ['create', 'get']),
  rule(CORE, ['configmaps'], ['create']),
  rule(CORE, ['secrets'], ['create', 'delete', 'list']),
  rule('networking.k8s.io', ['networkpolicies'], ['create', 'delete', 'list', 'update']),
];
const LEASES = rule('coordination.k8s.io', ['leases'], ['create', 'get', 'update']);
const CLAIMS = 'persistentvolumeclaims';

const SHARED = [
  rule(CORE, ['pods'], ['create', 'delete', 'list', 'patch', 'watch']),
  ...IN_NAMESPACE,
  LEASES,
];
const SHARED_VOLUMES = [rule(CORE, [CLAIMS], ['create', 'delete', 'list', 'patch', 'watch'])];

/** In the first namespace and in those of organizations. */
const OF_ORGANIZATION = [
  rule(CORE, ['pods'], ['create', 'delete', 'patch']),
  ...IN_NAMESPACE,
  rule(CORE, ['resourcequotas'], ['create', 'update']),
];
const OF_ORGANIZATION_VOLUMES = [rule(CORE, [CLAIMS], ['create', 'delete', 'patch'])];
/** In the first namespace. */
const OWN = [LEASES, rule(RBAC, ['rolebindings'], ['get'], [ORGANIZATION_BINDING])];
const OF_CLUSTER = [
  rule(CORE, ['namespaces'], ['create', 'get', 'list']),
  rule(CORE, ['pods'], ['list', 'watch']),
  rule(RBAC, ['rolebindings'], ['create']),
];
const OF_CLUSTER_VOLUMES = [rule(CORE, [CLAIMS], ['list', 'watch'])];

/** The namespace of sandboxes, and an account with the rights that the service uses. */
export function manifest(options: ManifestOptions): KubernetesObject[] {
  const { namespace, name, nodes, volumes, activity, namespaces = 'shared' } = options;
  const labels = { 'app.kubernetes.io/part-of': 'sandkeep' };
  const subjects = [{ kind: 'ServiceAccount', name, namespace }];
  const role = (
    kind: 'Role' | 'ClusterRole',
    object: string,
    rules: V1PolicyRule[],
    where?: string,
  ): V1Role => {
    const metadata = { name: object, ...(where === undefined ? {} : { namespace: where }), labels };
    return { apiVersion: `${RBAC}/v1`, kind, metadata, rules };
  };
  const binding = ({ kind, metadata }: V1Role, object = metadata!.name!, where = metadata?.namespace) => {
    const roleRef = { apiGroup: RBAC, kind: kind!, name: metadata!.name! };
    const of = { name: object, ...(where === undefined ? {} : { namespace: where }), labels };
    return {
      apiVersion: `${RBAC}/v1`,
      kind: where === undefined ? 'ClusterRoleBinding' : 'RoleBinding',
      metadata: of,
      subjects,
      roleRef,
    } satisfies V1RoleBinding;
  };
  const bound = (...args: Parameters<typeof role>) => [role(...args), binding(role(...args))];
  const prefix = `${namespace}-${name}`;
  const ofOrganization = role('ClusterRole', `${prefix}-organization`, [
    ...OF_ORGANIZATION,
    ...(volumes ? OF_ORGANIZATION_VOLUMES : []),
  ]);
  const ofNamespaces =
    namespaces === 'shared'
      ? bound(
          'Role',
          name,
          [namespaceRule(namespace), ...SHARED, ...(volumes ? SHARED_VOLUMES : [])],
          namespace,
        )
      : [
          ...bound('Role', name, OWN, namespace),
          ofOrganization,
          binding(ofOrganization, ORGANIZATION_BINDING, namespace),
          ...bound('ClusterRole', `${prefix}-organizations`, [
            ...OF_CLUSTER,
            bindRule(ofOrganization.metadata!.name!),
            ...(volumes ? OF_CLUSTER_VOLUMES : []),
          ]),
        ];
  return [
    { apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace, labels } },
    { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name, namespace, labels } },
    ...ofNamespaces,
    ...(nodes
      ? [
          ...bound('ClusterRole', `${prefix}-nodes`, [NODE_RULE]),
          ...bound('Role', prefix, [NODE_LEASE_RULE], NODE_LEASES),
        ]
      : []),
    ...(activity ? bound('ClusterRole', `${prefix}-activity`, [ACTIVITY_RULE]) : []),
  ];
}

/** The rights of the manifest, singly. `organizationRole`: the ClusterRole for their namespaces, if they have some. */
export function rightsOf(
  namespace: string,
  organizationRole?: string,
): Record<'needed' | 'nodes' | 'volumes' | 'activity', Right[]> {
  const common = {
    nodes: [...singleRights([NODE_RULE], undefined), ...singleRights([NODE_LEASE_RULE], NODE_LEASES)],
    activity: singleRights([ACTIVITY_RULE], undefined),
  };
  if (organizationRole === undefined) {
    return {
      ...common,
      needed: singleRights([namespaceRule(namespace), ...SHARED], namespace),
      volumes: singleRights(SHARED_VOLUMES, namespace),
    };
  }
  const ofCluster = [...OF_CLUSTER, bindRule(organizationRole)];
  return {
    ...common,
    needed: [...singleRights(ofCluster, undefined), ...singleRights([...OWN, ...OF_ORGANIZATION], namespace)],
    volumes: [
      ...singleRights(OF_CLUSTER_VOLUMES, undefined),
      ...singleRights(OF_ORGANIZATION_VOLUMES, namespace),
    ],
  };
}

function singleRights(rules: readonly V1PolicyRule[], namespace: string | undefined): Right[] {
  return rules.flatMap(({ apiGroups = [], resources = [], verbs, resourceNames }) =>
    apiGroups.flatMap((group) =>
      resources.flatMap((resource) =>
        verbs.map((verb) => ({ group, resource, verb, namespace, name: resourceNames?.[0] })),
      ),
    ),
  );
}

function namespaceRule(namespace: string): V1PolicyRule {
  return rule(CORE, ['namespaces'], ['get'], [namespace]);
}

function bindRule(role: string): V1PolicyRule {
  return rule(RBAC, ['clusterroles'], ['bind'], [role]);
}

function rule(apiGroup: string, resources: string[], verbs: string[], names?: string[]): V1PolicyRule {
  return {
    apiGroups: [apiGroup],
    resources,
    verbs,
    ...(names === undefined ? {} : { resourceNames: names }),
  };
}
