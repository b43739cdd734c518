import { Link } from 'wouter-preact';
import type { SandboxResponse } from '../lib/api-types';
import { bytes } from '../lib/bytes';
import { Badge } from '../parts/badge';
import type { Column } from '../parts/table';
import { Tags } from '../parts/tags';
import { Time } from '../parts/time';
import { commandInWords } from '../sandbox/words';
import { NEWEST_FIRST } from './filter';

const MIB = 1024 ** 2;

export const COLUMNS: readonly Column<SandboxResponse>[] = [
  {
    title: 'Name',
    cell: ({ id, name }) => (
      <Link href={`/sandboxes/${id}`} title={name}>
        {name}
      </Link>
    ),
    isWide: true,
    sorts: ['name'],
  },
  {
    title: 'Status',
    cell: (sandbox) => {
      const reason = reasonOf(sandbox);
      return (
        <>
          <Badge status={sandbox.status} />
          {reason !== undefined && <small title={sandbox.stop_message ?? reason}>{reason}</small>}
        </>
      );
    },
    isWide: true,
    value: ({ status }) => status,
  },
  {
    title: 'Labels',
    cell: ({ spec }) => <Tags of={spec?.labels ?? {}} folded />,
    isWide: true,
    isMinor: true,
  },
  {
    title: 'Image',
    // The end of the name tells images apart: registry and folder are often the same.
    cell: ({ spec }) => <code title={spec?.image ?? undefined}>{spec?.image?.split('/').at(-1)}</code>,
    isWide: true,
    isMinor: true,
    value: ({ spec }) => spec?.image,
  },
  {
    title: 'vCPUs',
    cell: ({ spec }) => spec?.resources.vcpus,
    isNumber: true,
    isMinor: true,
    value: ({ spec }) => spec?.resources.vcpus,
  },
  {
    title: 'Memory',
    cell: ({ spec }) => mib(spec?.resources.memory_mib),
    isNumber: true,
    isMinor: true,
    value: ({ spec }) => spec?.resources.memory_mib,
  },
  {
    title: 'Disk',
    cell: ({ spec }) => mib(spec?.resources.disk_size_mib),
    isNumber: true,
    isMinor: true,
    isExtra: true,
    value: ({ spec }) => spec?.resources.disk_size_mib,
  },
  {
    title: 'Started',
    cell: ({ started_at }) => <Time at={started_at} relative />,
    isMinor: true,
    value: ({ started_at }) => started_at,
  },
  {
    title: 'Stopped',
    cell: ({ stopped_at }) => <Time at={stopped_at} relative />,
    isMinor: true,
    isExtra: true,
    value: ({ stopped_at }) => stopped_at,
  },
  {
    title: 'Created',
    cell: ({ created_at }) => <Time at={created_at} relative />,
    sorts: [NEWEST_FIRST, 'created_at'],
  },
  {
    title: 'Id',
    cell: ({ id }) => <code>{id}</code>,
    isMinor: true,
    isExtra: true,
  },
];

function mib(amount: number | null | undefined): string {
  return amount == null ? '–' : bytes(amount * MIB);
}

/** Why it has its status, in a few words. */
function reasonOf(sandbox: SandboxResponse): string | undefined {
  const { status, status_reason, stop_reason, last_failure_message, command } = sandbox;
  if (status === 'starting' && status_reason != null) {
    return last_failure_message ?? status_reason.replaceAll('_', ' ');
  }
  if (status === 'running') return commandInWords(command);
  if (status === 'stopped') return stop_reason?.replaceAll('_', ' ');
  return status === 'failed' ? (last_failure_message ?? undefined) : undefined;
}
