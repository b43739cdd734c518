import { ExplainedError } from '../../lib/explained-error.js';
import { defineEngine } from '../../engine/definition.js';
import { explainConnection } from './explain-connection.js';
import { KUBERNETES_OPTIONS } from './options.js';

export const kubernetes = defineEngine({
  name: 'kubernetes',
  label: 'Kubernetes cluster',
  options: KUBERNETES_OPTIONS,
  address: ['kubeconfig', 'kubernetesContext', 'kubernetesNamespace', 'kubernetesNamespaces'],
  examined: ['kubernetesNetwork'],
  hasVolumeDirectories: false,
  remedy: ': name another with --kubeconfig and --kubernetes-context',

  // Each of these loads the client library, which takes long.
  async connect(options, { instanceId, observes = false, ...surroundings }) {
    const { KubernetesRuntime } = await import('./runtime.js');
    return KubernetesRuntime.connect(instanceId, {
      kubeconfig: options.kubeconfig,
      context: options.kubernetesContext,
      namespace: options.kubernetesNamespace,
      namespaces: options.kubernetesNamespaces,
      runtimeClass: options.kubernetesRuntimeClass,
      restrictedRuntimeClass: options.kubernetesRestrictedRuntimeClass,
      // The probe of a network starts Pods.
      network: observes ? 'trusted' : options.kubernetesNetwork,
      clusterCidrs: options.kubernetesClusterCidrs,
      probeImage: options.kubernetesProbeImage,
      nodeImages: options.kubernetesNodeImages,
      cpuOvercommit: options.kubernetesCpuOvercommit,
      storage: {
        storageClass: options.kubernetesStorageClass,
        defaultMib: options.kubernetesVolumeMib,
        access: options.kubernetesVolumeAccess,
        sizes: options.kubernetesVolumeSizes,
      },
      capacity: surroundings.capacity ?? {},
      defaultDiskMib: surroundings.defaultDiskMib,
      bandwidthMbits: surroundings.bandwidthMbits,
      sharedCpuMillis: surroundings.sharedCpuMillis,
      registry: surroundings.pulls?.reach,
    });
  },
  async examine(options, { instanceId }) {
    const { examineCluster } = await import('./examine.js');
    return { findings: await examineCluster(options, instanceId) };
  },
  explain: (error) => (error instanceof ExplainedError ? error.message : explainConnection(error)),
});
