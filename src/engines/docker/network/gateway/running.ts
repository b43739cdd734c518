import type Docker from 'dockerode';
import type { GatewayServices } from '../../../../engine/definition.js';
import { INSTANCE_LABEL, ORG_LABEL, SANDBOX_LABEL } from '../../container.js';
import { inspectPauseContainer, parsePauseContainer, type PauseContainer } from '../pause-container.js';
import { isGated, type GatedRun } from './gated-sandbox.js';

/** The runs that another process of the service started, and that need the gateway. */
export async function readRunning(
  docker: Docker,
  instanceId: string,
  { specOf }: Pick<GatewayServices, 'specOf'>,
): Promise<{ run: GatedRun; pause: PauseContainer }[]> {
  const label = [`${INSTANCE_LABEL}=${instanceId}`, SANDBOX_LABEL, ORG_LABEL];
  const found: { run: GatedRun; pause: PauseContainer }[] = [];
  for (const { Labels, HostConfig } of await docker.listContainers({ filters: { label } })) {
    const { [ORG_LABEL]: orgId, [SANDBOX_LABEL]: sandboxId } = Labels;
    if (orgId === undefined || sandboxId === undefined) continue;
    if (!HostConfig.NetworkMode.startsWith('container:')) continue;
    const spec = await specOf(orgId, sandboxId);
    const run = spec && { orgId, sandboxId, spec };
    if (!run || !isGated(run)) continue;
    const container = await inspectPauseContainer(docker, sandboxId);
    if (container?.State.Running) found.push({ run, pause: parsePauseContainer(container) });
  }
  return found;
}
