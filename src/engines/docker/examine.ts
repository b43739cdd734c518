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
        capsFinding(runtime),
        snapshotsFinding(runtime),
        ...(dockerNetwork === 'none' ? [] : [gatewayFinding(runtime, system)]),
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

function capsFinding({ lacks }: Pick<DockerRuntime, 'lacks'>): Finding {
  const check = 'volume caps';
  const reason = lacks.get('volume_caps');
  if (reason === undefined)
    return { check, state: 'ok', found: 'a volume with a cap is a disk of that size' };
  return {
    check,
    state: 'missing',
    found: `volumes with a cap are refused: ${reason}`,
    remedy: 'docs/runtimes.md#volumes-with-a-cap has what they need',
  };
}

function snapshotsFinding({ lacks }: Pick<DockerRuntime, 'lacks'>): Finding {
  const check = 'snapshots';
  const reason = lacks.get('disk_snapshots');
  if (reason === undefined)
    return { check, state: 'ok', found: 'disks of sandboxes can be captured, forked and built' };
  return {
    check,
    state: 'missing',
    found: `snapshots, forks and templates are refused: ${reason}`,
    remedy:
      'only on a machine without sandboxes that you need: set {"features": {"containerd-snapshotter": false}} in /etc/docker/daemon.json, and restart Docker; it no longer shows the containers and images that it has now',
  };
}

function gatewayFinding({ lacks }: Pick<DockerRuntime, 'lacks'>, system: HostSystem): Finding {
  const check = 'gateway';
  const reason = lacks.get('network_domains');
  if (reason === undefined)
    return { check, state: 'ok', found: 'policies by domain, secrets and interception can be enforced' };
  return {
    check,
    state: 'missing',
    found: `policies by domain, secrets and interception are refused: ${reason}`,
    remedy: `if it is a program: ${installCommand(system, 'iproute2')}; docs/network.md has what the gateway needs`,
  };
}

function remedyFor(kind: ConnectionProblem['kind'], system: HostSystem): string {
  if (kind === 'denied') return 'run the service as root, or: usermod -aG docker <its user>';
  return kind === 'stopped' ? 'systemctl start docker' : installCommand(system, 'docker');
}
