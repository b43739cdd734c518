import type { NewEvent } from '../../audit/events/record.js';
import { NETWORK } from '../../audit/events/actor.js';
import type { Due } from '../../engine/network-record/pending-record.js';
import type { Destination, LeftOut } from '../../engine/network-record/minute.js';
import type { Refusal } from '../../engine/network-record/refusal.js';
import { instantFromMicros, shortInstant, type Instant } from '../../lib/instant.js';
import type { ObservedSandbox } from './queries.js';

export type NewNetworkEvent =
  | NewEvent<'network_destination_used'>
  | NewEvent<'network_destination_denied'>
  | NewEvent<'network_secret_withheld'>
  | NewEvent<'network_record_cut'>;

/** The audit event of an entry of the record. */
export function eventOf(sandbox: ObservedSandbox, content: Due['content'], at: Instant): NewNetworkEvent {
  const event = { orgId: sandbox.org_id, actor: NETWORK, resourceId: sandbox.id, at };
  if ('destination' in content) {
    const payload = usePayload(sandbox, content.destination);
    return { ...event, type: 'network_destination_used', payload };
  }
  if ('leftOut' in content) {
    return { ...event, type: 'network_record_cut', payload: cutPayload(sandbox, content.leftOut) };
  }
  const { refusal } = content;
  const common = refusalPayload(sandbox, refusal);
  if (refusal.kind !== 'secret') {
    return { ...event, type: 'network_destination_denied', payload: { ...common, kind: refusal.kind } };
  }
  const { secret, terminates } = refusal;
  const payload = { ...common, secret: secret ?? '', terminates };
  return { ...event, type: 'network_secret_withheld', payload };
}

function usePayload(sandbox: ObservedSandbox, used: Destination) {
  return {
    ...destinationPayload(sandbox, used),
    verdict: 'allowed' as const,
    connections: used.connections,
    sent_bytes: used.sentBytes,
    received_bytes: used.receivedBytes,
    secrets: used.secrets,
  };
}

function refusalPayload(sandbox: ObservedSandbox, refusal: Refusal) {
  const { reason, count } = refusal;
  return { ...destinationPayload(sandbox, refusal), verdict: 'denied' as const, reason, count };
}

function cutPayload({ id, name }: ObservedSandbox, leftOut: LeftOut) {
  return {
    sandbox_id: id,
    name,
    connections: leftOut.connections,
    sent_bytes: leftOut.sentBytes,
    received_bytes: leftOut.receivedBytes,
    refusals: leftOut.refusals,
  };
}

function destinationPayload({ id, name }: ObservedSandbox, of: Destination | Refusal) {
  return {
    sandbox_id: id,
    name,
    domain: of.name,
    address: of.address,
    port: of.port,
    protocol: of.protocol,
    rule: of.rule,
    first_at: dateTimeOf(of.firstAt),
    last_at: dateTimeOf(of.lastAt),
  };
}

/** `millis`: since 1970. */
export function dateTimeOf(millis: number): string {
  return shortInstant(instantFromMicros(BigInt(millis) * 1_000n));
}
