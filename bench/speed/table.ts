import { join } from 'node:path';
import { ExplainedError } from '../../src/lib/explained-error.js';
import { dataSetOf, SMALL } from './data-set.js';
import { startFloors, type Floors } from './floors.js';
import type { Generator } from './generate.js';
import { MEASURES, OTHER_READS, type Measure } from './measures.js';
import { Progress } from './progress.js';
import { printAbout, printMemory, printOthers, printReads, writeResults, type Row } from './report.js';
import { inTurns, measureOnce } from './rounds.js';
import { openSide, readsOf, withOpened, type Side, type SpeedOptions } from './sides.js';
import { putFile } from './subject.js';
import { measureWrites } from './writes.js';

interface Bench {
  options: SpeedOptions;
  generator: Generator;
  large: Side;
  small: Side;
  floors: Floors;
}

const WRITES = 'writes';

/**
 * Prints the table of docs/performance/reads-and-writes.md, and writes it to bench/results. Throws when a request
 * fails.
 */
export async function speedTable(options: SpeedOptions): Promise<void> {
  const names = [...[...MEASURES, ...OTHER_READS].map(({ name }) => name), WRITES];
  if (!names.some((name) => isWanted(options, name))) {
    throw new ExplainedError(`--only: nothing has this in its name; there are ${names.join('; ')}`);
  }
  await withOpened(options, async (opened, directory, generator) => {
    const dataSet = dataSetOf(options.scale);
    const large = await openSide(opened, join(directory, 'large'), dataSet, 'the store', options.profile);
    const small = await openSide(opened, join(directory, 'small'), SMALL, 'the small store');
    const floors = await startFloors(opened, large);
    const { reads, once, writes } = await measureAll({ options, generator, large, small, floors });
    printAbout(options, dataSet);
    if (reads.length > 0) printReads(reads);
    if (once.length > 0) printOthers('READ', once);
    if (writes.length > 0) printOthers('WRITE', writes);
    printMemory([...reads, ...once, ...writes]);
    console.log(`\nwritten to ${writeResults('speed', { options, dataSet, reads, once, writes })}`);
  });
}

function isWanted({ only }: SpeedOptions, name: string): boolean {
  return only.length === 0 || only.some((part) => name.includes(part));
}

async function measureAll(bench: Bench): Promise<Record<'reads' | 'once' | 'writes', Row[]>> {
  const { options, large, generator } = bench;
  const { connections: counts, seconds } = options;
  const wanted = (name: string) => isWanted(options, name);
  const measures = MEASURES.filter(({ name }) => wanted(name));
  const others = OTHER_READS.filter(({ name }) => wanted(name));
  const rows: Record<'reads' | 'once' | 'writes', Row[]> = { reads: [], once: [], writes: [] };
  const progress = new Progress('measuring');
  const streamed = others.filter((other) => other.streamed).length;
  const steps = measures.length + others.length - streamed + (wanted(WRITES) ? 1 : 0);
  progress.begin('', steps * counts.length + streamed);
  try {
    for (const measure of measures) {
      for (const connections of counts) {
        progress.add(0, measure.name);
        rows.reads.push(await measureRead(bench, measure, connections));
        progress.add(1);
      }
    }
    await putFile(large.api, large.subject);
    for (const { name, paths, streamed } of others) {
      const arm = readsOf(large, paths(large.subject));
      for (const connections of streamed ? [1] : counts) {
        progress.add(0, name);
        rows.once.push({
          name,
          connections,
          service: await measureOnce(generator, arm, connections, seconds),
        });
        progress.add(1);
      }
    }
    for (const connections of wanted(WRITES) ? counts : []) {
      progress.add(0, WRITES);
      rows.writes.push(...(await measureWritesOf(bench, connections)));
      progress.add(1);
    }
    return rows;
  } finally {
    progress.end();
  }
}

async function measureRead(
  { options, generator, large, small, floors }: Bench,
  { name, paths }: Measure,
  connections: number,
): Promise<Row> {
  const service = readsOf(large, paths(large.subject));
  const arms = {
    service,
    small: readsOf(small, paths(small.subject)),
    floorB: { ...service, servers: [floors.b] },
    floorA: { ...service, servers: [floors.a], postmaster: undefined },
  };
  const { rounds, seconds } = options;
  return { name, connections, ...(await inTurns(generator, arms, { rounds, seconds, connections })) };
}

/** Writes to the large organization alone, then to all in rotation. */
async function measureWritesOf({ options, generator, large }: Bench, connections: number): Promise<Row[]> {
  const { store, server, loaded } = large;
  const { rounds, seconds } = options;
  const rows: Row[] = [];
  for (const [where, orgs] of [
    ['one organization', loaded.orgs.slice(0, 1)],
    ['all organizations', loaded.orgs],
  ] as const) {
    const written = { store, servers: [server], orgs };
    const figures = await measureWrites(generator, written, { rounds, seconds, connections });
    for (const [name, service] of Object.entries(figures)) {
      rows.push({ name: `${name}, ${where}`, connections, service });
    }
  }
  return rows;
}
