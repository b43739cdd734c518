import { call } from '../lib/api';
import type { SandboxDailyUsage, SandboxResponse } from '../lib/api-types';
import { useResource } from '../lib/use-resource';
import { Empty } from '../parts/empty';
import { Loaded } from '../parts/loaded';
import { Table, type Column } from '../parts/table';
import { CostShare } from './cost-share';

const DAY_MS = 86_400_000;
const DAYS = 30;
const number = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });

const COLUMNS: readonly Column<SandboxDailyUsage>[] = [
  { title: 'UTC day', cell: ({ day }) => day.slice(0, 10) },
  { title: 'vCPU seconds', cell: ({ vcpu_seconds }) => number.format(vcpu_seconds), isNumber: true },
  {
    title: 'Memory, MiB seconds',
    cell: ({ mem_mib_seconds }) => number.format(mem_mib_seconds),
    isNumber: true,
  },
  {
    title: 'Disk, MiB seconds',
    cell: ({ disk_mib_seconds }) => number.format(disk_mib_seconds),
    isNumber: true,
  },
];

export function Usage({ sandbox }: { sandbox: SandboxResponse }) {
  const since = new Date(Math.floor(Date.now() / DAY_MS - DAYS + 1) * DAY_MS).toISOString();
  const usage = useResource(`usage:${sandbox.id}:${since}`, (signal) =>
    call('GET /v1/billing/usage/sandbox', { query: { since, sandbox_id: [sandbox.id] }, signal }),
  );
  return (
    <>
      <CostShare sandboxId={sandbox.id} />
      <Loaded resource={usage}>
        {({ rows }) =>
          rows.length === 0 ? (
            <Empty
              title={`No usage in the last ${DAYS} days`}
              text="A sandbox uses its resources while it runs."
            />
          ) : (
            <Table
              caption={`Usage of the last ${DAYS} days`}
              columns={COLUMNS}
              rows={rows.toReversed()}
              id={({ day }) => day}
              name={({ day }) => day}
            />
          )
        }
      </Loaded>
    </>
  );
}
