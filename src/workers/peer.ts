import type { Peer } from '../context.js';
import { ForwardSeal } from '../http/forwarded.js';
import { createSecureContext } from 'node:tls';
import { networkPlace } from './process-identity.js';

/**
 * `sharedKey`: the same in every process on the database. `advertised`: an address that every process can reach.
 * `authorities`: of the certificates of the others, in PEM.
 */
export function makePeer(sharedKey: Buffer, advertised?: string, authorities?: string[]): Peer {
  const place = networkPlace();
  const trust = authorities && { trust: createSecureContext({ ca: authorities }) };
  const addressPlace = advertised === undefined ? place : null;
  return { address: advertised ?? null, addressPlace, place, seal: new ForwardSeal(sharedKey), ...trust };
}
