import type { Capability, Runtime } from '../runtimes/runtime.js';
import type { CreateSandboxRequest } from './schema.js';

/** Something a request needs that not every runtime can do, and the field that needs it. */
export interface Demand {
  capability: Capability;
  field: string;
  /** What is asked for, in words that go after "cannot". */
  what: string;
}

/** Everything in a request that not every runtime can do. */
export function demandsOf(request: CreateSandboxRequest): Demand[] {
  const { resources, runtime, network, lifecycle, registry } = request;
  const demands: (Demand | false)[] = [
    resources?.disk_size_mib != null && {
      capability: 'disk_size',
      field: 'resources.disk_size_mib',
      what: 'limit the size of the disk',
    },
    Object.keys(runtime?.scripts ?? {}).length > 0 && {
      capability: 'scripts',
      field: 'runtime.scripts',
      what: 'place scripts in the guest',
    },
    (request.patches ?? []).length > 0 && {
      capability: 'patches',
      field: 'patches',
      what: 'patch the root filesystem',
    },
    request.init != null && {
      capability: 'init',
      field: 'init',
      what: 'hand process 1 to a program of the guest',
    },
    ...(request.rlimits ?? []).map(
      ({ resource }, index): Demand | false =>
        resource === 'as' && {
          capability: 'rlimit_as',
          field: `rlimits[${index}]`,
          what: 'limit the address space',
        },
    ),
    ...(request.mounts ?? []).map((mount, index): Demand => {
      const field = `mounts[${index}]`;
      switch (mount.type) {
        case 'bind':
          return { capability: 'bind_mounts', field, what: 'mount a folder of the host volume' };
        case 'named':
          return { capability: 'named_volumes', field, what: 'mount a named volume' };
        case 'tmpfs':
          return { capability: 'tmpfs', field, what: 'mount a tmpfs' };
        case 'disk_image':
          return { capability: 'disk_images', field, what: 'mount a disk image' };
      }
    }),
    network?.policy != null && {
      capability: 'network_policy',
      field: 'network.policy',
      what: 'enforce a network policy',
    },
    network?.max_connections != null && {
      capability: 'connection_limit',
      field: 'network.max_connections',
      what: 'limit the number of connections',
    },
    (network?.secrets?.entries ?? []).length > 0 && {
      capability: 'secrets',
      field: 'network.secrets',
      what: 'inject secrets',
    },
    lifecycle?.idle_timeout_secs != null && {
      capability: 'idle_timeout',
      field: 'lifecycle.idle_timeout_secs',
      what: 'notice that a sandbox is idle',
    },
    (registry?.mode === 'inline' || registry?.mode === 'specific') && {
      capability: 'registry_credentials',
      field: 'registry.mode',
      what: 'log in to a registry',
    },
  ];
  return demands.filter((demand) => demand !== false);
}

/** The first demand that the runtime does not meet. */
export function unmetDemand(request: CreateSandboxRequest, runtime: Runtime): Demand | undefined {
  return demandsOf(request).find(({ capability }) => !runtime.capabilities.has(capability));
}
