import { readChoice } from './chosen-subnet.js';
import { hostRulesOf, inHost, removeHostRules } from './host-rules.js';

/** Removes what the machine has for an installation of which no virtual machine runs. */
export async function removeMachineNetwork({
  instanceId,
  directory,
  subnet,
}: {
  instanceId: string;
  directory: string;
  subnet: string | undefined;
}): Promise<void> {
  const chosen = subnet ?? readChoice(directory);
  await inHost(async (host) => removeHostRules(host, hostRulesOf(instanceId), chosen));
}
