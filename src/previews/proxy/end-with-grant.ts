import { breakOff } from '../answer.js';
import type { Exchange } from './exchange.js';
import type { UpgradeSocket } from './upgrade.js';

/**
 * Forwards a request, and cuts its client off when the grant ends. Every kind of forwarding gives its connection to the
 * sandbox up when its client is gone, so the grant is no business of theirs. `client`: of a request to upgrade, whose
 * connection is no longer that of the answer after the upgrade.
 */
export async function endWithGrant(
  { response, signal }: Pick<Exchange, 'response' | 'signal'>,
  client: Pick<UpgradeSocket, 'socket'> | undefined,
  forward: () => Promise<void>,
): Promise<void> {
  const cut = () => {
    breakOff(response);
    client?.socket.destroy();
  };
  // The grant may have ended while the request waited.
  if (signal.aborted) return cut();
  signal.addEventListener('abort', cut);
  try {
    await forward();
  } finally {
    signal.removeEventListener('abort', cut);
  }
}
