import { execFile } from 'node:child_process';
import { setImmediate as turn } from 'node:timers/promises';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { batchedByTurn, makeLog } from '../../src/lib/log.js';
import { cpuTime } from '../support/cpu-time.js';

test('the lines of one turn of the event loop are written together, in order, and nothing is written twice', async () => {
  const written: string[] = [];
  const log = makeLog('info', batchedByTurn({ write: (text) => void written.push(text) }));
  log.info('one');
  log.warn('two');
  expect(written).toEqual([]);
  await turn();
  log.info('three');
  await turn();
  await turn();
  expect(written.map(messagesOf)).toEqual([['one', 'two'], ['three']]);
});

test.each(['process.exit(3)', 'throw new Error("unforeseen")', 'process.kill(process.pid, "SIGTERM")'])(
  'lines logged before %s are written',
  async (end) => {
    const module = new URL('../../dist/src/lib/log.js', import.meta.url).href;
    const program = `
      import { pino } from 'pino';
      import { batchedByTurn, makeLog } from '${module}';
      process.on('SIGTERM', () => process.exit(0));
      const log = makeLog('info', batchedByTurn(pino.destination({ fd: 2, sync: true })));
      for (let count = 0; count < 1_000; count += 1) log.info({ count }, 'line');
      ${end}`;
    const { stderr } = await promisify(execFile)(process.execPath, [
      '--input-type=module',
      '--eval',
      program,
    ]).catch((error: unknown) => error as { stderr: string });
    expect(messagesOf(stderr).filter((message) => message === 'line')).toHaveLength(1_000);
  },
);

test('text for people has one line for each message, and no message controls the terminal', async () => {
  const module = (name: string) => new URL(`../../dist/src/lib/${name}.js`, import.meta.url).href;
  const program = `
    import { openLogDestination } from '${module('log-destination')}';
    import { batchedByTurn, makeLog } from '${module('log')}';
    const log = makeLog('info', batchedByTurn(await openLogDestination('text')));
    log.info({ route: '/v1/\\u001b[2J' }, 'request answered');
    log.error({ err: new Error('bad\\u001b]0;title\\u0007\\nsecond line') }, 'it failed');`;
  const { stderr } = await promisify(execFile)(process.execPath, ['--input-type=module', '--eval', program]);
  expect(stderr).toMatch(/^\[\d\d:\d\d:\d\d\] INFO: request answered \{"route":"\/v1\/\\+u001b\[2J"\}\n/);
  expect(stderr).toContain('ERROR: it failed');
  expect(stderr).toContain('\\u001b]0;title\\u0007');
  expect(stderr).not.toMatch(/[\u0000-\u0009\u000b-\u001f]/);
});

test('no credential of an error is logged, and a long error of a caller takes no time', async () => {
  const lines: string[] = [];
  const log = makeLog('info', { write: (line) => void lines.push(line) });
  const secrets = ['skp', 'skt', 'sks', 'skm', 'skl', 'ski', 'sko', 'msb_pat'].map(
    (kind) => `${kind}_0123456789abcdef`,
  );
  log.error(
    { err: new Error(`${secrets.join(' ')} postgres://u:pa/ss@h/db postgresql://u:other@h`) },
    'failed',
  );
  expect(lines.join('')).not.toMatch(/0123456789abcdef|pa\/ss|other/);
  expect(lines.join('')).toContain('postgres://u:[redacted]@h/db');
  const long = new Error('postgres://l:l'.repeat(20_000));
  expect(await cpuTime(() => log.error({ err: long }, 'failed'))).toBeLessThan(1_000);
});

function messagesOf(text: string): string[] {
  return text
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => (JSON.parse(line) as { msg: string }).msg);
}
