import { join } from 'node:path';
import { table } from '../../src/cli/table.js';
import { dataSetOf } from './data-set.js';
import { MEASURES, OTHER_READS, type OtherRead, type Read } from './measures.js';
import { Progress } from './progress.js';
import { printAbout, TARGETS, writeResults } from './report.js';
import { measureOnce, type Figures } from './rounds.js';
import { openSide, readsOf, withOpened, type SpeedOptions } from './sides.js';
import { measureWrites } from './writes.js';

const MINUTE_MS = 60_000;
/** Seconds of each minute for short reads, and for long answers in sequence; writes fill the remainder. */
const READ_SECONDS = 20;
const STREAM_SECONDS = 6;

/** Prints the memory of the service in each minute under reads of every kind and writes. */
export async function soak(options: SpeedOptions, minutes: number): Promise<void> {
  await withOpened(options, async (opened, directory, generator) => {
    const dataSet = dataSetOf(options.scale);
    const side = await openSide(opened, join(directory, 'large'), dataSet, 'the store', options.profile);
    const connections = Math.max(...options.connections);
    const of = (wanted: readonly Pick<OtherRead, 'paths'>[]) =>
      readsOf(
        side,
        wanted.flatMap(({ paths }): Read[] => paths(side.subject).slice(0, 20)),
      );
    const reads = of([...MEASURES, ...OTHER_READS.filter(({ streamed }) => !streamed)]);
    const streams = of(OTHER_READS.filter(({ streamed }) => streamed));
    const written = { store: side.store, servers: [side.server], orgs: side.loaded.orgs };
    const taken: (Figures & { minute: number })[] = [];
    const progress = new Progress('soaking');
    progress.begin('minutes', Math.ceil(minutes));
    try {
      for (let minute = 1; minute <= Math.ceil(minutes); minute += 1) {
        const end = Date.now() + MINUTE_MS;
        let figures: Figures;
        await measureOnce(generator, streams, 1, STREAM_SECONDS);
        do {
          await measureWrites(generator, written, { rounds: 1, seconds: 1, connections });
          figures = await measureOnce(generator, reads, connections, READ_SECONDS);
        } while (Date.now() < end);
        taken.push({ minute, ...figures });
        progress.add(1, `minutes, ${figures.nodePss.toFixed(0)} MiB`);
      }
    } finally {
      progress.end();
    }
    printAbout(options, dataSet);
    const rows = taken.map(({ minute, nodePss, nodeRss, postgresPss, rate }) => {
      const mark = nodePss < TARGETS.nodeMib ? '✓' : '✗';
      const shown = [nodeRss, postgresPss, rate].map((figure) => figure.toFixed(0));
      return [String(minute), String(connections), `${nodePss.toFixed(0)} ${mark}`, ...shown];
    });
    const head = [
      'MINUTE',
      'CONN.',
      `NODE PSS MiB <${TARGETS.nodeMib}`,
      'NODE RSS MiB',
      'POSTGRESQL PSS MiB',
    ];
    console.log('');
    console.log(table([...head, 'REQ/s, READS'], rows));
    console.log(`\nwritten to ${writeResults('soak', { options, dataSet, taken })}`);
  });
}
