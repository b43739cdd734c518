import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { sleep } from '../../../src/lib/sleep.js';
import type { Guest } from '../../../src/guest/guest.js';
import { READ, run, TestCommand, TestConnection } from '../../support/guest.js';
import { until } from '../../support/polling.js';
import type { Census, GuestTarget } from './target.js';

export function leakTests(open: () => Promise<GuestTarget>): void {
  describe('sessions', () => {
    let target: GuestTarget;
    let guest: Guest;
    beforeAll(async () => {
      target = await open();
      ({ guest } = target);
    });
    afterAll(async () => {
      await target?.close();
    });

    test('a thousand commands leave nothing behind', async () => {
      const work = async (i: number) => {
        const kind = i % 8;
        if (kind === 0) await run(guest, ['sh', '-c', 'sleep 0.01 & exit 1']);
        else if (kind === 1) await run(guest, ['no-such-program']);
        else if (kind === 2) await run(guest, ['stty', 'size'], { terminal: { rows: 5, cols: 5 } });
        else if (kind === 3) await run(guest, ['cat'], { input: 'x'.repeat(10_000) });
        else if (kind === 4) {
          const closed = new TestCommand(guest, ['sh', '-c', 'echo started; sleep 1000']);
          if (i % 16 === 4) await closed.says('started');
          closed.command.close();
          await closed.over;
        } else if (kind === 5) {
          const own = guest.files();
          await own.open('/', READ);
          await own.openDir('/');
          own.end();
        } else if (kind === 6) await new TestConnection(guest, '127.0.0.1', 1).saw('closed');
        else await run(guest, ['true']);
      };
      await Promise.all(Array.from({ length: 16 }, (_, i) => work(i)));
      const before = await settled();
      for (let i = 0; i < 1_000; i += 16) {
        await Promise.all(Array.from({ length: 16 }, (_, part) => work(i + part)));
      }
      const after = await until(
        () => target.census(),
        (census) => isWithin(census, before),
      );
      expect(isWithin(after, before)).toBe(true);
    });

    /** The census when nothing ends any more. */
    async function settled(): Promise<Census> {
      for (;;) {
        const before = await target.census();
        await sleep(300);
        const after = await target.census();
        if (isWithin(before, after) && isWithin(after, before)) return after;
      }
    }
  });
}

function isWithin(census: Census, bound: Census): boolean {
  return (Object.keys(census) as (keyof Census)[]).every((key) => census[key] <= bound[key]);
}
