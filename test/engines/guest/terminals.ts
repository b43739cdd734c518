import { Buffer } from 'node:buffer';
import { createHash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Guest } from '../../../src/guest/guest.js';
import { isAlive, run, TestCommand } from '../../support/guest.js';
import { until } from '../../support/polling.js';
import type { GuestTarget } from './target.js';

const sha256 = (data: Buffer) => createHash('sha256').update(data).digest('hex');

export function terminalTests(open: () => Promise<GuestTarget>): void {
  describe('terminals', () => {
    let target: GuestTarget;
    let guest: Guest;
    beforeAll(async () => {
      target = await open();
      ({ guest } = target);
    });
    afterAll(async () => {
      await target?.close();
    });

    const terminal = { rows: 31, cols: 97 };

    test('have their size at the start, and after each change', async () => {
      const command = new TestCommand(guest, ['sh', '-c', 'stty size; read x; stty size'], { terminal });
      await command.says('31 97');
      command.command.resize(50, 120);
      await command.command.write(Buffer.from('\n'));
      await command.over;
      expect(command.out).toContain('50 120');
      expect(command.err).toBe('');
    });

    test('turn Ctrl-C into a signal', async () => {
      const script = 'trap "echo caught; exit 3" INT; echo ready; while :; do sleep 0.05; done';
      const command = new TestCommand(guest, ['sh', '-c', script], { terminal });
      await command.says('ready');
      await command.command.write(Buffer.from([3]));
      await command.over;
      expect([command.code, command.out.includes('caught')]).toEqual([3, true]);
    });

    test('end their input when the writer ends it', async () => {
      const command = new TestCommand(guest, ['cat'], { terminal });
      await command.command.write(Buffer.from('line\n'));
      command.command.end();
      await command.over;
      expect([command.code, command.out]).toEqual([0, 'line\r\nline\r\n']);
    });

    test('are the controlling terminal, and hang up when they close', async () => {
      const command = new TestCommand(guest, ['sh', '-c', 'tty; echo $$; exec sleep 1000'], { terminal });
      await until(
        () => Promise.resolve(command.out),
        (out) => out.split('\n').length > 2,
      );
      expect(command.out).toMatch(/^\/dev\/pts\/\d+\r\n/);
      command.command.close();
      await command.over;
      await until(
        () => isAlive(guest, command.out.split('\r\n')[1]!),
        (alive) => !alive,
      );
      expect(command.code).toBe(137);
    });

    test('carry much output to the end', async () => {
      const command = await run(guest, ['sh', '-c', 'seq 1 20000'], { terminal });
      const wanted = Array.from({ length: 20_000 }, (_, i) => `${i + 1}\r\n`).join('');
      expect(sha256(Buffer.from(command.out))).toBe(sha256(Buffer.from(wanted)));
    });
  });
}
