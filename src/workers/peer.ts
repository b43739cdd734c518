import type { Peer } from '../context.js';
import { ForwardSeal } from '../http/forwarded.js';
import { networkPlace } from './process-identity.js';

/** `sharedKey`: the same in every process on the database. `advertised`: an address that every process can reach. */
export function makePeer(sharedKey: Buffer, advertised?: string): Peer {
  const place = networkPlace();
  const addressPlace = advertised === undefined ? place : null;
  return { address: advertised ?? null, addressPlace, place, seal: new ForwardSeal(sharedKey) };
}
