import type { PublicKey } from '../events/event-keys.js';
import { genesisLink, leafOf, linkOf } from '../events/hash-chain.js';
import { checkSignature } from '../log/checkpoint.js';
import type { LogCrypto } from './log-verifier.js';

export interface Trust {
  keys: readonly PublicKey[];
  accepted?: ReadonlySet<string>;
}

export function nodeCrypto({ keys, accepted }: Trust): LogCrypto {
  return {
    currentKeyId: keys.at(0)?.id,
    accepted,
    genesisLink,
    leafOf,
    linkOf,
    checkSignature: (checkpoint, headKey) => checkSignature(checkpoint, keys, headKey),
  };
}
