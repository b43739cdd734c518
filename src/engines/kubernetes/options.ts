import { isCidr } from '../../lib/cidr.js';
import { NETWORK_CHOICES } from './network/choices.js';
import { NAMESPACE_CHOICES } from './namespace-choices.js';
import { ACCESS_CHOICES, SIZE_CHOICES } from './volume-choices.js';
import { choice, integer, list, path, text } from '../../options/types.js';
import type { Options } from '../../options/option.js';

export const KUBERNETES_OPTIONS = {
  kubeconfig: {
    type: path('<file>'),
    description: 'kubeconfig of the cluster of --runtime kubernetes',
    unset: "the service account of the Pod that the service runs in, else '~/.kube/config'",
    variable: 'KUBECONFIG',
  },
  kubernetesContext: {
    type: text('<name>', 'the name of a context of the kubeconfig'),
    description: 'context of the kubeconfig',
    unset: "the kubeconfig's own",
  },
  kubernetesNamespace: {
    type: text('<name>', 'the name of a namespace'),
    description: 'namespace of the Pods of sandboxes; only Sandkeep should act in it',
    unset: 'that of the context or of the service account, else "default"',
  },
  kubernetesNamespaces: {
    type: choice('<choice>', NAMESPACE_CHOICES),
    description:
      'shared: the Pods of all organizations are in that namespace; each-organization: each one has a namespace of its own, <namespace>-<organization id>',
    default: 'shared',
  },
  kubernetesRuntimeClass: {
    type: text('<name>', 'the name of a RuntimeClass'),
    description: 'RuntimeClass of the Pods, such as gvisor',
    unset: "the cluster's default",
  },
  kubernetesRestrictedRuntimeClass: {
    type: text('<name>', 'the name of a RuntimeClass'),
    description: 'RuntimeClass of the Pods with the security profile restricted',
    unset: 'that of the others',
  },
  kubernetesNetwork: {
    type: choice('<choice>', NETWORK_CHOICES),
    description:
      'probe: sandboxes need a cluster that enforces network policies; trusted: they have the network of the cluster as it is',
    default: 'probe',
  },
  kubernetesClusterCidrs: {
    type: list('<blocks>', 'CIDR blocks separated by commas', (block) => (isCidr(block) ? block : undefined)),
    description: 'addresses of the Pods, nodes and Services of the cluster; no policy opens them',
    default: [],
    unset: 'every private address',
  },
  kubernetesProbeImage: {
    type: text('<image>', 'the reference of an image'),
    description: 'image of the two Pods that test the network; nothing in it is run',
    default: 'registry.k8s.io/pause:3.10',
  },
  kubernetesNodeImages: {
    type: list('<images>', 'references of images, separated by commas', (image) => image || undefined),
    description:
      'images on the nodes that every organization may use; others are pulled with the access of the organization at each start',
    default: [],
  },
  kubernetesCpuOvercommit: {
    type: integer('a number', 1, 1_000),
    description:
      'sandboxes reserve their vCPUs on nodes divided by this, and are limited to all of them; 1: no node is overcommitted',
    default: 1,
  },
  kubernetesStorageClass: {
    type: text('<name>', 'the name of a StorageClass'),
    description: 'StorageClass of the volumes of organizations',
    unset: "the cluster's default",
  },
  kubernetesVolumeMib: {
    type: integer('a number of MiB', 1, 999_999_999),
    description: 'size of the storage that the cluster allocates for a volume without a cap',
    default: 10_240,
  },
  kubernetesVolumeAccess: {
    type: choice('<mode>', ACCESS_CHOICES),
    description:
      'ReadWriteOnce: sandboxes with the same volume run on one node; ReadWriteMany: on any, if the StorageClass can',
    default: 'ReadWriteOnce',
  },
  kubernetesVolumeSizes: {
    type: choice('<choice>', SIZE_CHOICES),
    description:
      'enforced: the StorageClass holds volumes to their size, so that those with a cap can be mounted; advisory: it may not',
    default: 'advisory',
  },
} as const satisfies Options;
