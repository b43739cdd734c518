import type { Denial } from '../../gateway/protocol.js';
import type { GatewayServices, ObservedFlow } from '../definition.js';
import { DeniedLists } from './denied-lists.js';
import { PendingRecord } from './pending-record.js';
import { refusalOf } from './refusal.js';

/** Gets the reports of the gateway, and never blocks it: everything stays in memory until a job takes it. */
export class NetworkObserver implements Pick<GatewayServices, 'denied' | 'flows'> {
  readonly deniedLists = new DeniedLists();
  readonly record = new PendingRecord();
  /** The sandboxes that a violation ends, with its time in milliseconds since 1970. */
  readonly ending = new Map<string, number>();
  /** Since the start of the process. */
  readonly totals = { refusals: new Map<Denial['kind'], number>(), connections: 0, gatewayEnds: 0 };

  denied(denial: Denial): void {
    const refusal = refusalOf(denial);
    this.deniedLists.add(denial.sandbox, refusal);
    this.record.addRefusal(denial.sandbox, refusal);
    if (refusal.terminates) this.ending.set(denial.sandbox, denial.at);
    const { refusals } = this.totals;
    refusals.set(denial.kind, (refusals.get(denial.kind) ?? 0) + refusal.count);
  }

  flows(flows: readonly ObservedFlow[]): void {
    for (const flow of flows) {
      this.record.addFlow(flow);
      this.totals.connections += flow.connections;
    }
  }
}
