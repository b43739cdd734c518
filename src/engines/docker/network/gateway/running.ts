import type Docker from 'dockerode';
import type { GatewayServices } from '../../../../engine/definition.js';
import { INSTANCE_LABEL, ORG_LABEL, SANDBOX_LABEL } from '../../container.js';
import type { LinkedNamespace } from '../../../../machine-network/namespace.js';
import { inspectPauseContainer, parsePauseContainer } from '../pause-container.js';
import { isGated, type GatedRun } from '../../../../machine-network/gateway/gated-sandbox.js';

/** The runs that another process of the service started, and that need the gateway. */
export async function readRunning(
  docker: Docker,
  instanceId: string,
  { specOf }: Pick<GatewayServices, 'specOf'>,
): Promise<{ run: GatedRun; network: LinkedNamespace }[]> {
  const label = [`${INSTANCE_LABEL}=${instanceId}`, SANDBOX_LABEL, ORG_LABEL];
  const found: { run: GatedRun; network: LinkedNamespace }[] = [];
  for (const { Labels, HostConfig } of await docker.listContainers({ filters: { label } })) {
    const { [ORG_LABEL]: orgId, [SANDBOX_LABEL]: sandboxId } = Labels;
    if (orgId === undefined || sandboxId === undefined) continue;
    if (!HostConfig.NetworkMode.startsWith('container:')) continue;
    const spec = await specOf(orgId, sandboxId);
    const run = spec && { orgId, sandboxId, spec };
    if (!run || !isGated(run)) continue;
    const container = await inspectPauseContainer(docker, sandboxId);
    if (container?.State.Running) found.push({ run, network: parsePauseContainer(container) });
  }
  return found;
}
