import { escapeControls } from '../lib/escape-controls.js';
import { counted } from '../lib/counted.js';
import { duration, isShortOfRoom, type Problem } from './status-problems.js';
import type { InstallationState, OrgUse, WorkerUse } from './status-read.js';
import { table } from './table.js';

const WIDTH = 80;
const BAR = 12;
const MOST_ROWS = 8;
const LONGEST_NAME = 20;
const MIB_OF_GIB = 1_024;

export interface Look {
  isColoured: boolean;
}

export function statusText(state: InstallationState, problems: readonly Problem[], look: Look): string {
  const { version, at, database, sandboxes, organizations, workers, waiting } = state;
  const broken = problems.filter(({ severity }) => severity === 'problem').length;
  const word = wordOf(broken, waiting, look);
  const counts = Object.entries(sandboxes).map(([status, count]) => `${count} ${status}`);
  const reasons = Object.entries(waiting.reasons).map(
    ([reason, runs]) => `${runs} ${reason.replaceAll('_', ' ')}`,
  );
  const { verification, entries, unsealed } = state.event_log;
  const { active, failing, disabled_by_service: disabled, pending } = state.webhooks;
  const facts: [string, string][] = [
    ['database', `${database.kind} PostgreSQL ${database.version}, ${gib(database.bytes / 1024 ** 2)} GiB`],
    ['sandboxes', counts.length === 0 ? 'none' : counts.join(', ')],
    [
      'waiting',
      waiting.runs === 0
        ? 'none'
        : `${counted(waiting.runs, 'start')} for ${counted(waiting.vcpus, 'vCPU')}, the oldest for ${duration(waiting.oldest_secs)} (${reasons.join(', ')})`,
    ],
    ['event log', `${entries} entries, ${unsealed} unsealed, ${verified(verification)}`],
    ['webhooks', `${active} active, ${failing} failing, ${disabled} disabled, ${pending} deliveries pending`],
  ];
  return [
    `Sandkeep ${version}   ${word}   ${at.slice(0, 19)}Z`,
    '',
    ...facts.flatMap(([name, text]) => wrap(text, `${name.padEnd(10)} `)),
    ...(workers.length === 0 ? [] : ['', workerTable(workers)]),
    ...(organizations.length === 0 ? [] : ['', orgTable(organizations)]),
    ...(problems.length === 0 ? [] : ['']),
    ...problems.flatMap(({ severity, message }) =>
      wrap(escapeControls(message), severity === 'problem' ? '✗ ' : '– ').map((line) =>
        paint(line, severity === 'problem' ? 31 : 33, look),
      ),
    ),
  ].join('\n');
}

function wordOf(broken: number, waiting: InstallationState['waiting'], look: Look): string {
  if (broken > 0) return paint(counted(broken, 'problem'), 31, look);
  if (isShortOfRoom(waiting)) return paint('short of room', 33, look);
  return paint('healthy', 32, look);
}

function verified({ oldest_secs: age, never }: InstallationState['event_log']['verification']): string {
  if (age === null) return 'never verified';
  return `verified ${duration(age)} ago${never > 0 ? `, ${never} never` : ''}`;
}

function workerTable(workers: readonly WorkerUse[]): string {
  const rows = workers
    .slice(0, MOST_ROWS)
    .map((worker) => [
      clip(worker.name),
      use(worker.used_vcpus, worker.vcpus),
      use(worker.used_memory_mib / MIB_OF_GIB, worker.memory_mib / MIB_OF_GIB),
      worker.alive ? `pid ${holderOf(worker)}` : `away ${duration(-worker.lease_remaining_secs)}`,
    ]);
  return [table(['WORKER', 'VCPUS', 'MEMORY GiB', 'LEASE'], rows), ...more(workers, 'worker list')].join(
    '\n',
  );
}

function orgTable(organizations: readonly OrgUse[]): string {
  const rows = organizations
    .slice(0, MOST_ROWS)
    .map(({ org, running, sandboxes }) => [clip(org), String(running), String(sandboxes)]);
  const text = table(['ORGANIZATION', 'RUNNING', 'SANDBOXES'], rows);
  return [text, ...more(organizations, 'status --json')].join('\n');
}

function more(all: readonly unknown[], command: string): string[] {
  return all.length <= MOST_ROWS ? [] : [`… and ${all.length - MOST_ROWS} more: sandkeep ${command}`];
}

/** The process is named in the holder, where its machine has /proc (workers/process-identity.ts). */
function holderOf({ holder }: WorkerUse): string {
  return holder.split('/').at(-2) ?? 'unknown';
}

function use(used: number, capacity: number): string {
  const part = capacity > 0 ? Math.min(1, Math.max(0, used / capacity)) : 0;
  const filled = Math.round(part * BAR);
  return `${'#'.repeat(filled)}${'.'.repeat(BAR - filled)} ${round(used)}/${round(capacity)}`;
}

function round(value: number): string {
  return String(Math.round(value * 10) / 10);
}

function gib(mib: number): string {
  return (mib / MIB_OF_GIB).toFixed(2);
}

function clip(name: string): string {
  return name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME - 1)}…` : name;
}

/** Breaks a text between words; further lines are indented. */
function wrap(text: string, head: string): string[] {
  const lines = [head];
  for (const word of text.split(' ')) {
    const line = lines.at(-1)!;
    if (line.length + word.length > WIDTH && line.trim() !== '' && line !== head) {
      lines.push(`${' '.repeat(head.length)}${word} `);
    } else lines[lines.length - 1] = `${line}${word} `;
  }
  return lines.map((line) => line.trimEnd());
}

function paint(text: string, code: number, { isColoured }: Look): string {
  return isColoured ? `\u001b[${code}m${text}\u001b[0m` : text;
}
