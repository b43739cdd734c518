import { ExplainedError } from '../../lib/explained-error.js';
import { defineEngine } from '../../engine/definition.js';
import { explainConnectionError } from './connection-error.js';
import { DOCKER_OPTIONS } from './options.js';

export const docker = defineEngine({
  name: 'docker',
  label: 'Docker engine',
  options: DOCKER_OPTIONS,
  address: ['dockerSocket', 'dockerNetwork', 'dockerRuntime'],
  leaving: ['dockerSocket'],
  examined: ['dockerResolvers'],
  automatic: 'preferred',
  hasVolumeDirectories: true,
  remedy: ': start it, name its socket with --docker-socket, or use --runtime simulated',
  /**
   * The engine must see the mounts of the service, so the service stays in the mount namespace of the machine:
   * ProtectSystem, PrivateTmp and the like are left out. Mounts and namespaces of networks need SYS_ADMIN and
   * NET_ADMIN.
   */
  unitRights: {
    lines: `CapabilityBoundingSet=CAP_CHOWN CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER CAP_FSETID CAP_KILL
CapabilityBoundingSet=CAP_NET_ADMIN CAP_SETGID CAP_SETUID CAP_SYS_ADMIN CAP_SYS_PTRACE
CapabilityBoundingSet=CAP_SYS_RESOURCE
RestrictAddressFamilies=AF_INET AF_INET6 AF_NETLINK AF_UNIX
RestrictNamespaces=net user uts
SystemCallFilter=@system-service @mount setns unshare`,
    after: 'docker.service',
  },

  // Each of these loads the client library, which takes as long as loading the worker without it.
  async connect(options, { instanceId, ...surroundings }) {
    const { DockerRuntime } = await import('./runtime.js');
    return DockerRuntime.connect(instanceId, {
      socketPath: options.dockerSocket,
      network: options.dockerNetwork,
      preparedNetworks: options.dockerPreparedNetworks,
      runtimeClass: options.dockerRuntime,
      resolvers: options.dockerResolvers,
      allow: options.dockerAllow,
      processes: options.sandboxProcesses,
      writesMibPerSecond: options.sandboxDiskWritesMib,
      volumes: surroundings.volumes,
      capacity: surroundings.capacity ?? {},
      defaultDiskMib: surroundings.defaultDiskMib,
      bandwidthMbits: surroundings.bandwidthMbits,
      sharedCpuMillis: surroundings.sharedCpuMillis,
      pulls: surroundings.pulls,
      gateway: surroundings.gateway,
    });
  },
  async examine(options, context) {
    const { examineDocker } = await import('./examine.js');
    return examineDocker(options, context);
  },
  async findRemains({ dockerSocket }, { instanceId }) {
    const { findRemains } = await import('./remains.js');
    return findRemains(dockerSocket, instanceId);
  },
  explain: (error, { dockerSocket }) =>
    error instanceof ExplainedError ? error.message : explainConnectionError(error, dockerSocket).reason,
});
