import type { Config } from '../config/options.js';
import { ExplainedError } from '../lib/explained-error.js';
import { explainConnectionError, type ConnectionProblem } from '../engines/docker/connection-error.js';
import type { DockerRuntime } from '../engines/docker/runtime.js';
import { VolumeStore } from '../volumes/storage/store.js';
import { systemResolvers } from '../engines/docker/network/resolvers.js';
import { resolversFinding } from './doctor-resolvers.js';
import type { Finding } from './doctor-finding.js';
import { installCommand, type HostSystem } from './doctor-system.js';

export type DockerOptions = Pick<
  Config,
  'dockerSocket' | 'dockerNetwork' | 'dockerRuntime' | 'dockerResolvers' | 'dataDir' | 'volumesDir'
>;

/** `isRequired`: no other runtime can take the place of Docker. */
export async function checkDocker(
  { dockerSocket, dockerNetwork, dockerRuntime, dockerResolvers, dataDir, volumesDir }: DockerOptions,
  { system, isRequired }: { system: HostSystem; isRequired: boolean },
): Promise<{ findings: Finding[]; diskPath?: string | undefined }> {
  const check = 'docker';
  const { openDocker } = await import('../engines/choose.js');
  try {
    const runtime = await openDocker({
      dockerSocket,
      dockerNetwork,
      dockerRuntime,
      dataDir,
      instanceId: 'doctor',
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
    return {
      findings: [
        hasAll ? engine : { ...engine, remedy },
        quota,
        capsFinding(runtime),
        ...(dockerNetwork === 'none' ? [] : [resolversFinding(systemResolvers(), dockerResolvers ?? [])]),
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

function remedyFor(kind: ConnectionProblem['kind'], system: HostSystem): string {
  if (kind === 'denied') return 'run the service as root, or: usermod -aG docker <its user>';
  return kind === 'stopped' ? 'systemctl start docker' : installCommand(system, 'docker');
}
