import { v7 as uuidv7 } from 'uuid';
import { BARE_SPEC } from '../../support/import-lines.js';

const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;
const TEAMS = [
  { team: 'research', name: 'agent-batch', vcpus: 2, memory_mib: 4096, hours: 9 },
  { team: 'ml', name: 'train-run', vcpus: 4, memory_mib: 8192, hours: 5 },
  { team: 'web', name: 'preview', vcpus: 1, memory_mib: 1024, hours: 11 },
  { team: 'data', name: 'etl', vcpus: 2, memory_mib: 2048, hours: 3 },
  { team: 'ci', name: 'build', vcpus: 2, memory_mib: 2048, hours: 2 },
];

/** Lines for `sandkeep import`: each team ran a sandbox on each of the latest days, less at weekends. */
export function historyOf(orgId: string, days: number, now = Date.now()): string {
  const lines: object[] = [];
  const today = Math.floor(now / DAY_MS) * DAY_MS;
  for (let day = days; day >= 1; day -= 1) {
    const start = today - day * DAY_MS;
    const isWeekend = [0, 6].includes(new Date(start).getUTCDay());
    for (const [place, { team, name, vcpus, memory_mib, hours }] of TEAMS.entries()) {
      // Varies without chance, so that the pictures of two runs are alike.
      const swing = 0.7 + 0.6 * Math.abs(Math.sin(day * 1.7 + place));
      const length = hours * swing * (isWeekend ? 0.35 : 1) * HOUR_MS;
      const began = start + (7 + place) * HOUR_MS;
      const [from, to] = [began, began + length].map((ms) => new Date(ms).toISOString());
      const id = uuidv7();
      const label = `${name}-${String(days - day + 1).padStart(2, '0')}`;
      lines.push({
        kind: 'sandbox',
        org_id: orgId,
        id,
        name: label,
        slug: `${label}-${id.slice(-6)}`,
        status: 'stopped',
        ephemeral: false,
        created_at: from,
        started_at: from,
        stopped_at: to,
        removed_at: to,
        spec: {
          ...BARE_SPEC,
          resources: { vcpus, memory_mib, disk_size_mib: null },
          labels: { team, env: 'batch' },
        },
      });
      lines.push({
        kind: 'run',
        org_id: orgId,
        id: uuidv7(),
        sandbox_id: id,
        started_at: from,
        stopped_at: to,
        vcpus,
        memory_mib,
        disk_mib: 0,
      });
    }
  }
  return lines.map((line) => JSON.stringify(line)).join('\n');
}
