import type { PortToPublish } from '../lib/api-types';

interface PublishedPortsProps {
  ports: unknown;
  change: (ports: PortToPublish[] | undefined) => void;
}

/** `network.ports`. The service chooses the ports of the machine that are left out. */
export function PublishedPorts({ ports, change }: PublishedPortsProps) {
  const entries = Array.isArray(ports) ? (ports as PortToPublish[]) : [];
  const replace = (next: PortToPublish[]) => change(next.length === 0 ? undefined : next);
  const set = (place: number, part: Partial<PortToPublish>) =>
    replace(entries.map((entry, at) => (at === place ? { ...entry, ...part } : entry)));
  return (
    <fieldset class="published-ports">
      <legend>Published ports</legend>
      {entries.map(({ guest_port: guest, host_port: host, protocol = 'tcp' }, place) => (
        <p key={place} class="actions">
          <input
            type="number"
            min="1"
            max="65535"
            aria-label={`Port of the sandbox ${place + 1}`}
            placeholder="8080"
            value={guest === 0 ? '' : guest}
            onInput={({ currentTarget }) => set(place, { guest_port: Number(currentTarget.value) })}
          />
          <input
            type="number"
            min="0"
            max="65535"
            aria-label={`Port of the machine ${place + 1}`}
            placeholder="chosen"
            value={host === 0 ? '' : host}
            onInput={({ currentTarget }) => set(place, { host_port: Number(currentTarget.value) })}
          />
          <select
            aria-label={`Protocol ${place + 1}`}
            value={protocol}
            onChange={({ currentTarget }) =>
              set(place, { protocol: currentTarget.value === 'udp' ? 'udp' : 'tcp' })
            }
          >
            <option value="tcp">tcp</option>
            <option value="udp">udp</option>
          </select>
          <button
            type="button"
            aria-label={`Remove published port ${place + 1}`}
            onClick={() => replace(entries.filter((_, at) => at !== place))}
          >
            Remove
          </button>
        </p>
      ))}
      <button type="button" onClick={() => replace([...entries, { guest_port: 0 }])}>
        Publish a port
      </button>
      <small>Ports of the sandbox at a loopback address of its machine. They ask for no key.</small>
    </fieldset>
  );
}
