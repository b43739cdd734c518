import { Link } from 'wouter-preact';
import { sentence } from '../lib/advice';
import { Facts } from '../parts/facts';
import { Time } from '../parts/time';
import { number } from './number';
import type { StreamVerdict } from './verification';

interface Shown {
  verdict: StreamVerdict & { hasKeys: boolean; seconds: number };
}

export function Verdict({ verdict }: Shown) {
  return verdict.wrong === null ? <InOrder verdict={verdict} /> : <Fault verdict={verdict} />;
}

function InOrder({ verdict }: Shown) {
  const { entries, checkpoints, unmarked, begins_after, replaced_key, end_key, hasKeys, seconds } = verdict;
  return (
    <div class="panel verdict good" role="status">
      <h3>
        In order: {number(entries)} {entries === 1 ? 'entry' : 'entries'}
      </h3>
      <ul class="proofs">
        <li>Each event has the hash that the log recorded for it.</li>
        <li>Each entry follows the previous: none was changed, removed, inserted or reordered on its own.</li>
        {hasKeys ? (
          <li>
            {number(checkpoints)} checkpoints, the end among them, have signatures of the keys that you gave.
            The key <code>{end_key ?? 'none'}</code> signed the end.
          </li>
        ) : (
          <li class="unproved">
            Signatures were not verified, because you gave no key. This proves the integrity of the chain, not
            its origin: a chain that was written anew as a whole looks the same.
          </li>
        )}
        {begins_after > 0 && (
          <li class="unproved">
            The log begins after entry {number(begins_after)}. Retention dropped the entries up to it.
          </li>
        )}
        {unmarked > 0 && (
          <li class="unproved">{number(unmarked)} events were not written under the event keys.</li>
        )}
        {hasKeys && replaced_key !== null && (
          <li class="unproved">
            The key <code>{replaced_key}</code>, which signed the end, is not the first that you gave. A
            holder of a replaced key can write such a log.
          </li>
        )}
      </ul>
      <small>
        {number(entries / Math.max(seconds, 0.001))} entries a second, {seconds.toFixed(1)} s with the
        download. Events of the last second may not be in the log yet.
      </small>
    </div>
  );
}

const TITLES = { unknown_key: 'Signed by an unknown key', unsealed: 'Not complete' } as const;

function Fault({ verdict }: Shown) {
  const { wrong, fault, place, line, before } = verdict;
  const title = fault === 'unknown_key' || fault === 'unsealed' ? TITLES[fault] : 'Tampered with';
  const facts = [
    ...(place?.expected === undefined ? [] : [['Expected', <code>{place.expected}</code>] as const]),
    ...(place?.found === undefined ? [] : [['Found', <code>{place.found}</code>] as const]),
    ...(line === null ? [] : [['Line of the export', number(line)] as const]),
  ];
  return (
    <div class="panel verdict fault" role="alert">
      <h3>{title}</h3>
      <p class="fault-message">{sentence(wrong ?? '')}</p>
      <ol class="chain" aria-label="The place of the fault">
        {before.map(({ seq, event_id, occurred_at, event_type }) => (
          <li key={seq}>
            <b>{number(seq)}</b> <EventAddress id={event_id} text={event_type ?? 'dropped'} />{' '}
            <Time at={occurred_at} /> in order
          </li>
        ))}
        <li class="bad">
          {place === null ? (
            'Here the log ends, or its form breaks.'
          ) : (
            <>
              <b>{number(place.seq)}</b>{' '}
              {place.event_id === undefined ? (
                'the first fault'
              ) : (
                <EventAddress id={place.event_id} text={`event ${place.event_id}`} />
              )}
            </>
          )}
        </li>
      </ol>
      {facts.length > 0 && <Facts of={facts} />}
      <p>
        Keep this export, and compare it with earlier ones: <code>sandkeep events verify --against</code> on
        the machine of the service names what differs.
      </p>
    </div>
  );
}

/** Opens what the service shows for the event now. */
function EventAddress({ id, text }: { id: string; text: string }) {
  const address = new URLSearchParams(location.search);
  address.set('event', id);
  return <Link href={`/audit?${address}`}>{text}</Link>;
}
