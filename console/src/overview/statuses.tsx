import { Link } from 'wouter-preact';
import type { SandboxSummary } from '../lib/api-types';
import type { Resource } from '../lib/use-resource';
import { TONES } from '../parts/badge';
import { counted } from './counted';
import { Part } from './part';

const SHOWN = ['running', 'starting', 'stopping', 'stopped', 'failed', 'created'] as const;

/** The number of sandboxes in each status. A number leads to its list. */
export function Statuses({ summary }: { summary: Resource<SandboxSummary> }) {
  return (
    <Part title="Sandboxes now" resource={summary} class="statuses">
      {(data) => (
        <ul class="tiles">
          {SHOWN.map((status) => (
            <li key={status}>
              <Link
                href={`/sandboxes?status=${status}`}
                class={data[status] === 0 ? 'tile none' : `tile ${TONES[status] ?? ''}`}
              >
                <b>{counted(data[status])}</b>
                <span>{status}</span>
              </Link>
            </li>
          ))}
        </ul>
      )}
    </Part>
  );
}
