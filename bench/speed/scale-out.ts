import { join } from 'node:path';
import { table } from '../../src/cli/table.js';
import { sleep } from '../../src/lib/sleep.js';
import { dataSetOf } from './data-set.js';
import { MEASURES } from './measures.js';
import { serve } from './processes.js';
import { cpu, latencies, printAbout, writeResults } from './report.js';
import { inTurns, type Arm } from './rounds.js';
import { openSide, readsOf, withOpened, type SpeedOptions } from './sides.js';
import { measureWrites } from './writes.js';

/** The service closes unused connections after this time. */
const IDLE_CONNECTIONS_MS = 12_000;
const READS = new Set(['get one', 'list 20', 'events 20, type and time']);

/** Prints the joint throughput of several processes of the service on one database. */
export async function scaleOut(options: SpeedOptions, counts: readonly number[]): Promise<void> {
  await withOpened(options, async (opened, directory, generator) => {
    const dataSet = dataSetOf(options.scale);
    const side = await openSide(opened, join(directory, 'large'), dataSet, 'the store', options.profile);
    const servers = [side.server];
    while (servers.length < Math.max(...counts)) {
      const server = await serve(side.store);
      opened.add(() => server.stop());
      servers.push(server);
    }
    const rows: string[][] = [];
    const results: Record<string, unknown>[] = [];
    const { rounds, seconds } = options;
    for (const connections of options.connections) {
      const pace = { rounds, seconds, connections };
      const note = (name: string, count: number, figures: Parameters<typeof cpu>[0], first: number) => {
        const gain = (figures.rate / first).toFixed(2);
        rows.push([
          name,
          String(connections),
          String(count),
          ...latencies(figures),
          figures.rate.toFixed(0),
          gain,
          cpu(figures),
          figures.nodePss.toFixed(0),
        ]);
        results.push({ name, connections, processes: count, figures });
      };
      for (const { name, paths } of MEASURES.filter((measure) => READS.has(measure.name))) {
        const arms = Object.fromEntries(
          counts.map((count): [string, Arm] => [
            String(count),
            readsOf(side, paths(side.subject), servers.slice(0, count)),
          ]),
        );
        const figures = await inTurns(generator, arms, pace);
        for (const count of counts) note(name, count, figures[count]!, figures[counts[0]!]!.rate);
      }
      let first: number | undefined;
      for (const count of counts) {
        // All processes share the 100 connections of the embedded server, so idle ones of the previous arm must close
        // first.
        await sleep(IDLE_CONNECTIONS_MS);
        const written = { store: side.store, servers: servers.slice(0, count), orgs: side.loaded.orgs };
        const { 'create and start': figures } = await measureWrites(generator, written, pace);
        first ??= figures!.rate;
        note('create and start, all organizations', count, figures!, first);
      }
    }
    printAbout(options, dataSet);
    const head = ['REQUEST', 'CONN.', 'PROCESSES', 'p50 ms', 'p90', 'p99', 'REQ/s', 'TO THE FIRST'];
    console.log('');
    console.log(table([...head, 'CPU µs NODE + PG', 'NODE PSS MiB'], rows));
    console.log(`\nwritten to ${writeResults('processes', { options, dataSet, results })}`);
  });
}
