import { InvalidArgumentError, Option, type Command } from 'commander';
import type { Config } from '../config/options.js';
import { sleep } from '../lib/sleep.js';
import { databaseCommand, withDatabase } from './command.js';
import { withConfig } from './config-options.js';
import { inspectDisks } from './doctor-disks.js';
import { inspectKeys, type KeyOptions } from './doctor-keys.js';
import { isShortOfRoom, problemsOf } from './status-problems.js';
import { readState } from './status-read.js';
import { statusText } from './status-text.js';

const NAMES = ['volumesDir', 'diskReserveMib', 'secretKeys', 'secretKeysFile'] as const;
const WATCH_SECONDS = 2;
const CLEAR = '\u001b[H\u001b[2J';

type StatusOptions = KeyOptions & Pick<Config, (typeof NAMES)[number]> & { watch?: number | true };

export function statusCommand(): Command {
  return withConfig(databaseCommand('status'), NAMES)
    .description(
      'show what runs and where, what waits and why, and what is wrong; exits with 1 if something is wrong',
    )
    .addOption(
      new Option(
        '--watch [seconds]',
        `repeat until it is interrupted (default: every ${WATCH_SECONDS} s)`,
      ).argParser((text: string) => {
        if (!/^[1-9]\d{0,3}$/.test(text)) throw new InvalidArgumentError('It must be 1 to 9999 seconds.');
        return Number(text);
      }),
    )
    .action(async (options: StatusOptions) => {
      const { watch } = options;
      if (watch === undefined) return show(options);
      const over = new AbortController();
      for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => over.abort());
      const pauseMs = (watch === true ? WATCH_SECONDS : watch) * 1_000;
      while (!over.signal.aborted) {
        await show(options, process.stdout.isTTY ? CLEAR : '');
        await sleep(pauseMs, over.signal);
      }
    });
}

/** The database is opened each time, so that a stopped service can be started meanwhile. */
async function show(options: StatusOptions, before = ''): Promise<void> {
  const { databaseUrl, json } = options;
  const kind = databaseUrl === undefined ? 'embedded' : 'external';
  const { state, stored } = await withDatabase(options, 'status', (pool) => readState(pool, kind));
  const disks = databaseUrl === undefined ? await inspectDisks(options, undefined) : [];
  const problems = problemsOf(state, [{ check: 'keys', ...inspectKeys(options, stored) }, ...disks]);
  const broken = problems.some(({ severity }) => severity === 'problem');
  const healthy = !broken && !isShortOfRoom(state.waiting);
  const isColoured = process.stdout.isTTY && process.stdout.hasColors();
  const text = json
    ? JSON.stringify({ healthy, problems, ...state })
    : statusText(state, problems, { isColoured });
  process.stdout.write(`${before}${text}\n`);
  process.exitCode = broken ? 1 : 0;
}
