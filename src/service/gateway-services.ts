import type { Logger } from 'pino';
import type { PgPool } from '../db/pool.js';
import type { GatewayServices } from '../engine/definition.js';
import type { NetworkObserver } from '../engine/network-record/observer.js';
import type { Keyring } from '../secrets/keyring.js';
import { findRunSpec } from '../sandboxes/reconcile/queries.js';
import { openNetworkAuthority } from '../secrets/network-authority.js';
import { openSecrets } from '../secrets/secrets.js';

interface Parts {
  pool: PgPool;
  keyring: () => Keyring;
  observer: NetworkObserver;
  log: Pick<Logger, 'warn'>;
}

/** The parts of the service that the gateway of its engine works with. */
export function gatewayServices({ pool, keyring, observer, log }: Parts): GatewayServices {
  return {
    authority: async () => openNetworkAuthority(pool, keyring),
    secrets: async (orgId, sandboxId) => openSecrets(pool, keyring, orgId, sandboxId),
    specOf: async (orgId, sandboxId) => (await findRunSpec(pool, orgId, sandboxId))?.run_spec,
    denied: (denial) => observer.denied(denial),
    flows: (flows) => observer.flows(flows),
    ended(reason) {
      observer.totals.gatewayEnds += 1;
      log.warn({ reason }, 'the gateway of the network has ended: starting it again');
    },
  };
}
