import type { Denial } from '../../gateway/protocol.js';
import type { ObservedFlow } from '../../engine/definition.js';
import type { Evaluator } from '../../network-policy/evaluate.js';
import type { Counts, Peer, Reading } from './record-table.js';

/** The reports of one sandbox, from the differences of its readings. */
export class SandboxTraffic {
  private previous: Reading | undefined;
  private readAt: number;

  /** `evaluator`: undefined when names decide too, or when the policy is unknown after a restart of the service. */
  constructor(
    private readonly sandbox: string,
    private readonly evaluator: Evaluator | undefined,
    now: number,
  ) {
    this.readAt = now;
  }

  /** `begun`: the counters began with the caller. Otherwise the first reading is the base of the next one only. */
  take(reading: Reading, now: number, begun = true): { flows: ObservedFlow[]; denials: Denial[] } {
    const { previous, readAt } = this;
    this.previous = reading;
    this.readAt = now;
    if (!previous && !begun) return { flows: [], denials: [] };
    const since = (name: 'tried' | 'opened' | 'gated' | 'sent' | 'received', key: string) =>
      difference(reading[name], previous?.[name], key);
    const keys = new Set([...reading.opened.keys(), ...reading.sent.keys(), ...reading.received.keys()]);
    const flows = [...keys].flatMap((key) => {
      const peer = (reading.sent.get(key) ?? reading.opened.get(key) ?? reading.received.get(key))!;
      const connections = since('opened', key).packets;
      const [sentBytes, receivedBytes] = [since('sent', key).bytes, since('received', key).bytes];
      if (connections + sentBytes + receivedBytes === 0) return [];
      const counts = { connections, sentBytes, receivedBytes, secrets: [] };
      return [{ ...this.described(peer, 'allow'), ...counts, firstAt: readAt, lastAt: now }];
    });
    const more = reading.moreBytes - (previous?.moreBytes ?? 0);
    const others: ObservedFlow[] =
      more <= 0
        ? []
        : [
            {
              sandbox: this.sandbox,
              address: '*',
              port: 0,
              protocol: 'tcp',
              rule: null,
              connections: 0,
              sentBytes: more,
              receivedBytes: 0,
              firstAt: readAt,
              lastAt: now,
              secrets: [],
            },
          ];
    const denials = [...reading.tried].flatMap(([key, peer]) => {
      const count = since('tried', key).packets - since('opened', key).packets - since('gated', key).packets;
      if (count <= 0) return [];
      const { rule, ...to } = this.described(peer, 'deny');
      const reason = `the policy does not allow ${peer.address} port ${peer.port} by ${peer.protocol}`;
      return [
        { ...to, ...(rule === null ? {} : { rule }), kind: 'connection' as const, at: now, count, reason },
      ];
    });
    return { flows: [...flows, ...others], denials };
  }

  private described({ address, port, protocol }: Peer, action: 'allow' | 'deny') {
    const verdict = this.evaluator?.decide({ carrier: protocol, address, port, names: [] });
    const rule = verdict?.action === action ? verdict.rule : null;
    return { sandbox: this.sandbox, address, port, protocol, rule };
  }
}

/** An entry that has left and come again counts from 0. */
function difference(
  now: Counts,
  before: Counts | undefined,
  key: string,
): { packets: number; bytes: number } {
  const [current, known] = [now.get(key), before?.get(key)];
  if (!current) return { packets: 0, bytes: 0 };
  if (!known || known.packets > current.packets) return current;
  return { packets: current.packets - known.packets, bytes: current.bytes - known.bytes };
}
