import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { cpus, release, totalmem } from 'node:os';
import { join } from 'node:path';
import { table } from '../../src/cli/table.js';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { RUNS_EACH, type DataSet } from './data-set.js';
import type { Figures } from './rounds.js';
import type { SpeedOptions } from './sides.js';

/** The targets. The first two are for 32 connections. */
export const TARGETS = {
  ofFloorB: 0.6,
  slowest: 5,
  growth: 1.3,
  creates: 1_000,
  nodeMib: 200,
  connections: 32,
} as const;

export interface Row {
  name: string;
  connections: number;
  service: Figures;
  /** The same read in a store with 1,000 rows. */
  small?: Figures;
  floorA?: Figures;
  floorB?: Figures;
}

/** Prints the measures that have floors and a small store for comparison. */
export function printReads(rows: readonly Row[]): void {
  const head = ['READ', 'CONN.', 'p50 ms', 'p90', 'p99', `p99/p50 <${TARGETS.slowest}`, 'REQ/s'];
  const ratios = ['OF FLOOR A', `OF FLOOR B ≥${TARGETS.ofFloorB}`, `TO 1,000 ROWS ≤${TARGETS.growth}`];
  const cells = rows.map(({ name, connections, service, small, floorA, floorB }) => {
    const aimed = floorB !== undefined && connections === TARGETS.connections;
    const slow = service.p99 / service.p50;
    const ofB = floorB && service.rate / floorB.rate;
    const growth = small && service.p50 / small.p50;
    return [
      name,
      String(connections),
      ...latencies(service),
      aimed ? marked(slow, slow < TARGETS.slowest) : slow.toFixed(2),
      service.rate.toFixed(0),
      floorA ? (service.rate / floorA.rate).toFixed(2) : '',
      ofB === undefined ? '' : aimed ? marked(ofB, ofB >= TARGETS.ofFloorB) : ofB.toFixed(2),
      growth === undefined ? '' : marked(growth, growth <= TARGETS.growth),
      cpu(service),
      floorB ? cpu(floorB) : '',
    ];
  });
  print(table([...head, ...ratios, 'CPU µs NODE + PG', 'OF FLOOR B'], cells));
}

/** Prints the measures without a floor. */
export function printOthers(what: 'READ' | 'WRITE', rows: readonly Row[]): void {
  const rate = what === 'WRITE' ? `REQ/s, CREATE ≥${TARGETS.creates}` : 'REQ/s';
  const cells = rows.map(({ name, connections, service }) => {
    const aimed = name.startsWith('create') && connections === TARGETS.connections;
    const reached = service.rate >= TARGETS.creates;
    return [
      name,
      String(connections),
      ...latencies(service),
      (service.p99 / service.p50).toFixed(2),
      `${service.rate.toFixed(0)}${aimed ? ` ${mark(reached)}` : ''}`,
      cpu(service),
    ];
  });
  print(table([what, 'CONN.', 'p50 ms', 'p90', 'p99', 'p99/p50', rate, 'CPU µs NODE + PG'], cells));
}

/** Prints the memory at the end of the measurements, the maximum for each number of connections. */
export function printMemory(rows: readonly Row[]): void {
  const counts = [...new Set(rows.map(({ connections }) => connections))];
  const cells = counts.map((count) => {
    const all = rows.filter(({ connections }) => connections === count).map(({ service }) => service);
    const most = (name: keyof Figures) => Math.max(...all.map((figures) => figures[name]));
    const pss = most('nodePss');
    const shown = [pss.toFixed(0), most('nodeRss').toFixed(0), most('postgresPss').toFixed(0)];
    return [String(count), `${shown[0]} ${mark(pss < TARGETS.nodeMib)}`, ...shown.slice(1)];
  });
  print(table(['CONN.', `NODE PSS MiB <${TARGETS.nodeMib}`, 'NODE RSS MiB', 'POSTGRESQL PSS MiB'], cells));
}

/** Prints the machine and the data set of the figures below. */
export function printAbout({ scale, rounds, seconds }: SpeedOptions, dataSet: DataSet): void {
  const { sandboxes, events, others } = dataSet;
  const { node, processors, model } = machine();
  console.log(`
${new Date().toISOString().slice(0, 10)}, Node ${node}, ${processors} processors (${model})
scale ${scale}: one organization with ${sandboxes} sandboxes, ${sandboxes * RUNS_EACH} runs and ${events} events, and ${others} small ones
${rounds} rounds in turns of ${seconds} s each, medians`);
}

function print(text: string): void {
  console.log(`\n${text}`);
}

export function latencies({ p50, p90, p99 }: Figures): string[] {
  return [p50, p90, p99].map((value) => value.toFixed(2));
}

export function cpu({ nodeMicros, postgresMicros }: Figures): string {
  return `${nodeMicros.toFixed(0)} + ${postgresMicros.toFixed(0)}`;
}

function marked(value: number, reached: boolean): string {
  return `${value.toFixed(2)} ${mark(reached)}`;
}

function mark(reached: boolean): string {
  return reached ? '✓' : '✗';
}

/** The machine. */
function machine(): Record<string, string | number> {
  const processors = cpus();
  return {
    node: process.versions.node,
    processors: processors.length,
    model: processors[0]?.model ?? 'unknown',
    memoryGib: Math.round(totalmem() / 1024 ** 3),
    kernel: release(),
    commit: commit(),
  };
}

function commit(): string {
  try {
    return execFileSync('git', ['rev-parse', '--short', 'HEAD'], {
      cwd: PACKAGE_ROOT,
      encoding: 'utf8',
    }).trim();
  } catch {
    return 'unknown';
  }
}

/** Returns the file. */
export function writeResults(what: string, results: Record<string, unknown>): string {
  const folder = join(PACKAGE_ROOT, 'bench', 'results');
  mkdirSync(folder, { recursive: true });
  const date = new Date().toISOString();
  const file = join(folder, `${what}-${date.slice(0, 19).replaceAll(':', '')}.json`);
  const command = `npm run bench -- ${process.argv.slice(2).join(' ')}`.trim();
  writeFileSync(file, `${JSON.stringify({ date, command, machine: machine(), ...results }, null, 2)}\n`);
  return file;
}
