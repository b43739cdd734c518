import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { writeFileAtomicallySync } from '../../../lib/atomic-file.js';
import { freeSubnet, isFree, parseRoutes } from './address-pool.js';
import { hostRulesOf } from './host-rules.js';

const FILE = 'addresses';

/**
 * The addresses of an installation whose operator chose none. The choice stays, unless another network of the machine
 * has them now and no sandbox runs. Undefined: none are free. `directory`: of the engine.
 */
export function chooseSubnet(instanceId: string, directory: string): string | undefined {
  const { links } = hostRulesOf(instanceId);
  const earlier = readChoice(directory);
  const routes = parseRoutes(readFileSync('/proc/self/net/route', 'utf8'));
  const isRunning = routes.some(({ link }) => link.startsWith(links));
  // The installation itself drops packets to its addresses.
  const isOurs =
    isRunning ||
    isFree(
      earlier ?? '',
      routes.filter(({ link }) => link !== '*'),
    );
  if (earlier !== undefined && isOurs) return earlier;
  const chosen = freeSubnet(instanceId, routes);
  if (chosen !== undefined) writeFileAtomicallySync(join(directory, FILE), `${chosen}\n`, { replace: true });
  return chosen;
}

export function readChoice(directory: string): string | undefined {
  try {
    return readFileSync(join(directory, FILE), 'utf8').trim();
  } catch {
    return undefined;
  }
}
