import type { ValuesOf } from '../../options/option.js';
import type { KUBERNETES_OPTIONS } from './options.js';
import { ExplainedError } from '../../lib/explained-error.js';
import type { Cluster } from './client.js';
import type { Finding } from '../../engine/finding.js';
import { openCluster } from './client.js';
import { explainConnection } from './explain-connection.js';
import { rightsOf } from './manifest.js';
import { deniedAmong, namespaceExists, readOrganizationBinding } from './review-rights.js';
import { latestFindings } from './network/probe-lease.js';

type ExaminedOptions = Pick<
  ValuesOf<typeof KUBERNETES_OPTIONS>,
  'kubeconfig' | 'kubernetesContext' | 'kubernetesNamespace' | 'kubernetesNamespaces' | 'kubernetesNetwork'
>;

const check = 'cluster';
/** The first release with every interface that the runtime uses. */
const OLDEST_MINOR = 20;

/** Asks the API server, and changes nothing. `instanceId`: undefined where no database runs. */
export async function examineCluster(
  options: ExaminedOptions,
  instanceId: string | undefined,
): Promise<Finding[]> {
  try {
    const cluster = await openCluster({
      kubeconfig: options.kubeconfig,
      context: options.kubernetesContext,
      namespace: options.kubernetesNamespace,
    });
    return [
      await checkVersion(cluster),
      ...(await checkRights(cluster, options)),
      await checkNetwork(cluster, options, instanceId),
    ];
  } catch (error) {
    const found = error instanceof ExplainedError ? error.message : explainConnection(error);
    const remedy = 'kubectl cluster-info with the same kubeconfig and context, until it answers';
    return [{ check, state: 'broken', found, remedy }];
  }
}

async function checkVersion({ library, config, server, namespace }: Cluster): Promise<Finding> {
  const { gitVersion, major, minor } = await new library.VersionApi(
    library.createConfiguration({
      baseServer: new library.ServerConfiguration(server, {}),
      authMethods: { default: config },
    }),
  ).getCode();
  const found = `Kubernetes ${gitVersion} at ${server}, namespace ${namespace}`;
  // Providers put a plus sign after the number. A cluster that was built without its tags is version 0.
  const isOld = major === '1' && Number.parseInt(minor, 10) < OLDEST_MINOR;
  if (!isOld) return { check, state: 'ok', found };
  const remedy = 'upgrade the cluster';
  return { check, state: 'broken', found: `${found}: 1.${OLDEST_MINOR} or later is needed`, remedy };
}

async function checkRights(cluster: Cluster, { kubernetesNamespaces }: ExaminedOptions): Promise<Finding[]> {
  const { namespace } = cluster;
  const areApart = kubernetesNamespaces === 'each-organization';
  const choice = areApart ? ' --namespaces each-organization' : '';
  const remedy = `sandkeep kubernetes manifest --namespace ${namespace}${choice} | kubectl apply -f -`;
  const binding = areApart ? await readOrganizationBinding(cluster) : undefined;
  if (areApart && !binding) {
    const found = `the namespace "${namespace}" has no RoleBinding "sandkeep-organization" that the account may read`;
    return [{ check: 'rights', state: 'broken', found, remedy }];
  }
  const rights = rightsOf(namespace, binding?.roleRef.name);
  const denied = await deniedAmong(cluster, rights.needed);
  if (denied.length > 0) {
    const found = `the account may not: ${denied.join('; ')}`;
    return [{ check: 'rights', state: 'broken', found, remedy }];
  }
  if (!(await namespaceExists(cluster))) {
    const found = `the cluster has no namespace "${namespace}"`;
    return [{ check: 'rights', state: 'broken', found, remedy }];
  }
  const volumes = (await deniedAmong(cluster, rights.volumes)).length > 0 ? 'refused' : 'kept as claims';
  const found = `the account has every right that the runtime needs; named volumes are ${volumes}`;
  const needed: Finding = { check: 'rights', state: 'ok', found };
  const deniedNodes = await deniedAmong(cluster, rights.nodes);
  const idle = (await deniedAmong(cluster, rights.activity)).length > 0 ? 'refused' : 'enforced';
  const nodes: Finding =
    deniedNodes.length === 0
      ? { check: 'nodes', state: 'ok', found: `the account may read them; idle_timeout_secs is ${idle}` }
      : {
          check: 'nodes',
          state: 'missing',
          found: `the account may not: ${deniedNodes.join('; ')}: the capacity is unknown, and a lost node is noticed late`,
          remedy,
        };
  return [needed, nodes];
}

async function checkNetwork(
  cluster: Cluster,
  { kubernetesNetwork }: ExaminedOptions,
  instanceId: string | undefined,
): Promise<Finding> {
  const check = 'network';
  if (kubernetesNetwork === 'trusted') {
    const found =
      "sandboxes have the network of the cluster, unfiltered: it is TRUSTED by the operator's option";
    return { check, state: 'missing', found, remedy: '--kubernetes-network probe' };
  }
  const latest = instanceId === undefined ? undefined : await latestFindings(cluster, instanceId);
  if (!latest) {
    const why = instanceId === undefined ? 'as no database runs' : 'as the service has not probed it';
    return { check, state: 'ok', found: `not known, ${why}: the first start of the service probes it` };
  }
  const { findings, at } = latest;
  const when = `probed at ${new Date(at).toISOString()}`;
  if (findings.reason === null) {
    return { check, state: 'ok', found: `the cluster enforces NetworkPolicy, ${when}` };
  }
  return {
    check,
    state: 'missing',
    found: `${findings.reason}, ${when}: sandboxes are refused`,
    remedy:
      'install a network plugin with NetworkPolicy, or use --kubernetes-network trusted (docs/kubernetes.md)',
  };
}
