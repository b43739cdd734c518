import { integer, list, path, text } from '../../options/types.js';
import type { Options } from '../../options/option.js';
import { GUARDED_GROUPS } from '../../network-policy/guarded-groups.js';
import { DISK_WRITES } from './disk-writes.js';
import { isUsable } from '../../machine-network/resolvers.js';

/** Processes and threads of a sandbox. While thousands fork, they hold locks of the kernel that others wait for. */
export const PROCESSES = { default: 256, least: 32, most: 4_194_304 };

/** Each is a container, with a process of the engine for it. */
const PREPARED_NETWORKS = { default: 8, most: 256 };

export const DOCKER_OPTIONS = {
  dockerSocket: {
    type: path('<path>'),
    description: 'socket of the Docker Engine API',
    default: '/var/run/docker.sock',
  },
  dockerNetwork: {
    type: text('<name>', 'the name of a network'),
    description: 'Docker bridge network of the sandboxes; none: no sandbox has a network',
    unset: "one of the service's own",
  },
  dockerRuntime: {
    type: text('<name>', 'the name of a runtime of the engine'),
    description: 'runtime of the Docker engine for the containers, such as runsc',
    unset: "the engine's own",
  },
  dockerPreparedNetworks: {
    type: integer('a number of networks', 0, PREPARED_NETWORKS.most),
    description:
      'networks that wait for the next sandboxes on Docker, so that these start faster; each takes 10 MiB',
    default: PREPARED_NETWORKS.default,
  },
  dockerResolvers: {
    type: list('<addresses>', 'IPv4 addresses separated by commas, none of them a loopback', (address) =>
      isUsable(address) ? address : undefined,
    ),
    description: 'resolvers that sandboxes on Docker ask, from their next start on',
    unset: 'those of the machine that have IPv4',
  },
  dockerAllow: {
    type: list('<groups>', `${GUARDED_GROUPS.join(', ')}, or both separated by a comma`, (word) =>
      GUARDED_GROUPS.find((known) => known === word),
    ),
    description: `surroundings of the machine that network policies may open: ${GUARDED_GROUPS.join(', ')}, or both`,
    default: [],
  },
  sandboxProcesses: {
    type: integer('a number of processes', PROCESSES.least, PROCESSES.most),
    description: 'most processes and threads of a sandbox on Docker, from its next start on',
    default: PROCESSES.default,
  },
  sandboxDiskWritesMib: {
    type: integer('a number of MiB', 0, DISK_WRITES.most),
    description:
      'most MiB a second that a sandbox on Docker writes to a disk, from its creation on; 0: no limit',
    default: DISK_WRITES.default,
  },
} as const satisfies Options;
