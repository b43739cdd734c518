import type { NetworkObserver } from '../engine/network-record/observer.js';
import { total, type Sample } from './samples.js';

const KINDS = ['name', 'connection', 'request', 'secret'] as const;

/** The reports about the network of the sandboxes on the engine of this process. */
export function measureNetwork({ totals, record }: NetworkObserver): Sample[] {
  const refused = 'Refusals by the gateway, and by the kernel where the network is recorded, by kind.';
  return [
    ...KINDS.map((kind) =>
      total('sandkeep_network_refusals_total', refused, totals.refusals.get(kind) ?? 0, { kind }),
    ),
    total(
      'sandkeep_network_connections_total',
      'Connections of sandboxes through the gateway, and those that the kernel counts.',
      totals.connections,
    ),
    total(
      'sandkeep_network_gateway_ends_total',
      'Ends of the gateway, which is started again at once.',
      totals.gatewayEnds,
    ),
    total(
      'sandkeep_network_record_lost_total',
      'Entries of the record that were dropped while the database was away.',
      record.lost,
    ),
  ];
}
