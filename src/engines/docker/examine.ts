import { ExplainedError } from '../../lib/explained-error.js';
import type { Examination, ExaminationContext } from '../../engine/definition.js';
import type { Finding } from '../../engine/finding.js';
import { installCommand, type HostSystem } from '../../engine/host-system.js';
import type { ValuesOf } from '../../options/option.js';
import { VolumeStore } from '../../volumes/storage/store.js';
import { explainConnectionError, type ConnectionProblem } from './connection-error.js';
import {
  examineDatabaseDisk,
  examineKernel,
  examinePrograms,
  examineResolvers,
  examineSandboxRoom,
} from './examine-machine.js';
import { systemResolvers } from '../../machine-network/resolvers.js';
import type { DOCKER_OPTIONS } from './options.js';
import { DockerRuntime } from './runtime.js';

/** Connects to the engine, and looks at the machine for what the runtime needs beside it. */
export async function examineDocker(
  options: ValuesOf<typeof DOCKER_OPTIONS>,
  context: ExaminationContext,
): Promise<Examination> {
  const { findings, diskPath } = await examineEngine(options, context);
  if (diskPath === undefined) return { findings };
  const shared = context.hasOwnDatabase ? examineDatabaseDisk(context, diskPath) : [];
  return {
    findings: [...findings, ...examinePrograms(context.system), examineKernel(), ...shared],
    diskPath,
  };
}

/** `isRequired`: no other engine can take the place of Docker. */
async function examineEngine(
  options: ValuesOf<typeof DOCKER_OPTIONS>,
  { system, isRequired, volumesDir }: ExaminationContext,
): Promise<Examination> {
  const check = 'docker';
  const { dockerSocket, dockerNetwork, dockerResolvers } = options;
  try {
    const runtime = await DockerRuntime.connect('doctor', {
      socketPath: dockerSocket,
      network: dockerNetwork,
      runtimeClass: options.dockerRuntime,
      volumes: new VolumeStore(volumesDir),
    });
    const hasAll =
      (runtime.capabilities.has('network_policy') || dockerNetwork === 'none') &&
      runtime.capabilities.has('named_volumes');
    const remedy = 'see the reasons in the line above, and docs/installing.md#rights-of-the-docker-runtime';
    const engine: Finding = { check, state: hasAll ? 'ok' : 'missing', found: runtime.description };
    const noQuota = runtime.lacks.get('disk_size');
    const quota: Finding =
      noQuota === undefined
        ? { check: 'disk sizes', state: 'ok', found: 'the engine bounds the disk of each sandbox' }
        : {
            check: 'disk sizes',
            state: 'missing',
            found: `a sandbox can fill the disk, and requests with a disk size are refused: ${noQuota}`,
            remedy: `keep ${runtime.diskPath ?? 'its data'} on xfs mounted with pquota, on btrfs or on zfs; docs/runtimes.md#disks-with-a-size has the commands for btrfs in a file`,
          };
    await runtime.close();
    return {
      findings: [
        hasAll ? engine : { ...engine, remedy },
        quota,
        findingOf(runtime.lacks.get('volume_caps'), CAPS),
        findingOf(runtime.lacks.get('disk_snapshots'), SNAPSHOTS),
        ...(dockerNetwork === 'none'
          ? []
          : [findingOf(runtime.lacks.get('network_domains'), gatewayOn(system))]),
        ...(dockerNetwork === 'none' ? [] : [examineSandboxRoom(runtime.bounds.memoryMib)]),
        ...(dockerNetwork === 'none' ? [] : [examineResolvers(systemResolvers(), dockerResolvers ?? [])]),
      ],
      diskPath: runtime.diskPath,
    };
  } catch (error) {
    if (error instanceof ExplainedError) {
      const remedy = 'docker info --format "{{json .Runtimes}}", then --docker-runtime with such a name';
      return { findings: [{ check, state: 'broken', found: error.message, remedy }] };
    }
    const { kind, reason } = explainConnectionError(error, dockerSocket);
    const effect = isRequired ? 'the service waits for it' : 'sandboxes can only be simulated';
    return {
      findings: [
        {
          check,
          state: isRequired ? 'broken' : 'missing',
          found: `${reason}: ${effect}`,
          remedy: remedyFor(kind, system),
        },
      ],
    };
  }
}

/** The effect of an ability that the engine may lack. */
interface Effect {
  check: string;
  ok: string;
  refused: string;
  remedy: string;
}

function findingOf(reason: string | undefined, { check, ok, refused, remedy }: Effect): Finding {
  if (reason === undefined) return { check, state: 'ok', found: ok };
  return { check, state: 'missing', found: `${refused} are refused: ${reason}`, remedy };
}

const CAPS: Effect = {
  check: 'volume caps',
  ok: 'a volume with a cap is a disk of that size',
  refused: 'volumes with a cap',
  remedy: 'docs/runtimes.md#volumes-with-a-cap has what they need',
};

const SNAPSHOTS: Effect = {
  check: 'snapshots',
  ok: 'disks of sandboxes can be captured, forked and built',
  refused: 'snapshots, forks and templates',
  remedy:
    'only on a machine without sandboxes that you need: set {"features": {"containerd-snapshotter": false}, "storage-driver": "overlay2"} in /etc/docker/daemon.json, and restart Docker; it no longer shows the containers and images that it has now',
};

const gatewayOn = (system: HostSystem): Effect => ({
  check: 'gateway',
  ok: 'policies by domain, secrets and interception can be enforced',
  refused: 'policies by domain, secrets and interception',
  remedy: `if it is a program: ${installCommand(system, 'iproute2')}; docs/network.md has what the gateway needs`,
});

function remedyFor(kind: ConnectionProblem['kind'], system: HostSystem): string {
  if (kind === 'denied') return 'run the service as root, or: usermod -aG docker <its user>';
  return kind === 'stopped' ? 'systemctl start docker' : installCommand(system, 'docker');
}
