import { SingleBar } from 'cli-progress';
import type { Command } from 'commander';
import { open } from 'node:fs/promises';
import type { ImportResult } from '../import/import.js';
import { escapeControls } from '../lib/escape-controls.js';
import { ExplainedError } from '../lib/explained-error.js';
import { databaseCommand, print, withDatabase, type CommonOptions } from './command.js';
import { table } from './table.js';

const HELP = `
One JSON object a line, "kind" first; the order of lines does not matter:
  org      {id, name, slug}
  sandbox  {org_id and all fields of a sandbox as the API shows it, optional removed_at}
  run      {org_id, id, sandbox_id, started_at, stopped_at|null, vcpus, memory_mib, disk_mib}
  volume   {org_id, id, volume_kind: host|managed, name|null, created_at, optional removed_at}
  accrual  {org_id, volume_id, from, to, used_mib}
  event    {all fields of an event as the API shows it}

An ephemeral sandbox that is stopped or failed is loaded as removed; its runs and events stay.
Loading a file again changes nothing: what is there stays as it is.
With a bad line nothing is loaded, unless --skip-bad.`;

export function importCommand(): Command {
  return databaseCommand('import')
    .description('load history from elsewhere')
    .argument('<file>', 'file of JSON lines, or - for standard input')
    .option('--skip-bad', 'load the valid lines although other lines are invalid')
    .addHelpText('after', HELP)
    .action(async (file: string, options: CommonOptions & { skipBad?: true }) => {
      const input = await openInput(file);
      const { importLines } = await import('../import/import.js');
      const result = await withDatabase(options, 'import', (pool) =>
        withProgress(input, (onLine) =>
          importLines(pool, input.chunks, { skipBad: options.skipBad ?? false, onLine }),
        ),
      );
      report(options, result);
      if (result.badCount > 0 && !result.committed) process.exitCode = 1;
    });
}

interface Input {
  chunks: AsyncIterable<Buffer>;
  /** In bytes. Undefined for a pipe. */
  size: number | undefined;
  read: () => number;
}

async function openInput(file: string): Promise<Input> {
  const unreadable = (cause: unknown) =>
    new ExplainedError(`cannot read ${file}: ${(cause as Error).message}`, { cause });
  let stream: AsyncIterable<Buffer> = process.stdin;
  let size: number | undefined;
  if (file !== '-') {
    const handle = await open(file).catch((cause: unknown) => {
      throw unreadable(cause);
    });
    const found = await handle.stat();
    if (found.isDirectory()) throw new ExplainedError(`cannot read ${file}: it is a directory`);
    if (found.isFile()) size = found.size;
    stream = handle.createReadStream();
  }
  let bytes = 0;
  async function* counted(): AsyncIterable<Buffer> {
    try {
      for await (const chunk of stream) {
        bytes += chunk.length;
        yield chunk;
      }
    } catch (cause) {
      throw unreadable(cause);
    }
  }
  return { chunks: counted(), size, read: () => bytes };
}

async function withProgress<T>(
  input: Input,
  work: (onLine: (line: number) => void) => Promise<T>,
): Promise<T> {
  if (!process.stderr.isTTY) return work(() => undefined);
  const format =
    input.size === undefined ? '{lines} lines' : '{bar} {percentage}%  {lines} lines  {eta_formatted} left';
  const bar = new SingleBar({ format, stream: process.stderr, barsize: 30, hideCursor: true });
  bar.start(input.size ?? 0, 0, { lines: 0 });
  let lines = 0;
  try {
    return await work((line) => {
      lines = line;
      if (line % 500 === 0) bar.update(input.read(), { lines });
    });
  } finally {
    bar.update(input.read(), { lines });
    bar.stop();
  }
}

const SHOWN = 50;

function report(options: CommonOptions, result: ImportResult): void {
  const { lines, imported, unchanged, bad, badCount, committed } = result;
  if (!options.json) {
    for (const { line, reason } of bad.slice(0, SHOWN))
      process.stderr.write(`line ${line}: ${escapeControls(reason)}\n`);
    if (badCount > SHOWN) process.stderr.write(`… and ${badCount - SHOWN} more bad lines\n`);
  }
  const rows = Object.entries(imported).map(([kind, count]) => [
    kind,
    String(count),
    String(unchanged[kind as keyof typeof unchanged]),
  ]);
  if (!committed && !options.json) {
    process.stderr.write(
      `sandkeep: nothing was loaded: ${badCount} of ${lines} lines are bad (--skip-bad loads the others)\n`,
    );
    return;
  }
  print(
    options,
    { committed, lines, imported, unchanged, bad_count: badCount, bad },
    `${table(['KIND', 'NEW', 'THERE BEFORE'], rows, { wide: true })}\n\n${lines} lines read, ${badCount} bad`,
  );
}
