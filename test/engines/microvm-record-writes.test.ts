import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { placesOf } from '../../src/engines/microvm/places.js';
import { requestStop } from '../../src/engines/microvm/supervisor.js';
import { newId } from '../../src/lib/uuid.js';
import { describeSupervisor, START, superviseAgain } from '../support/fake-monitor.js';
import { until } from '../support/polling.js';

describeSupervisor('the record of a run on a full disk', () => {
  test('is written again once the disk has room', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'sandkeep-supervised-'));
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=128k', 'none', directory]);
    onTestFinished(() => {
      execFileSync('umount', ['--lazy', directory]);
      rmSync(directory, { recursive: true });
    });
    const places = placesOf(directory, newId());
    mkdirSync(places.run, { recursive: true, mode: 0o700 });
    const go = join(tmpdir(), `sandkeep-go-${newId()}`);
    onTestFinished(() => rmSync(go, { force: true }));
    const script = `${START} while [ ! -e ${go} ]; do sleep 0.05; done; echo ready >&7; read -r word <&7`;
    const vm = superviseAgain({ directory, places }, script);
    await vm.untilRecord(({ startedAt }) => startedAt !== undefined);
    const ballast = join(directory, 'ballast');
    expect(() => writeFileSync(ballast, Buffer.alloc(1024 * 1024))).toThrow('ENOSPC');
    writeFileSync(go, '');
    const sign = () => statSync(places.alive).mtimeMs;
    const before = sign();
    // Two signs of life later it has tried.
    await until(
      async () => Promise.resolve(sign()),
      (at) => at > before + 2_000,
    );
    expect((await vm.record())!.readyAt).toBeUndefined();
    rmSync(ballast);
    await vm.untilRecord(({ readyAt }) => readyAt !== undefined);
    await requestStop(places.run, 0);
    await vm.ended;
  });
});
