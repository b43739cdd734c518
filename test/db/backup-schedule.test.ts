import { mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { verifyArchive } from '../../src/backup/archive/open.js';
import { startScheduledBackups, type Schedule } from '../../src/backup/schedule.js';
import { readBackupAge } from '../../src/db/instance-queries.js';
import { until } from '../support/polling.js';
import { startForTest, type TestService } from '../support/service.js';

const MADE = 'a scheduled backup was made';
const FAILED = 'a scheduled backup failed';

async function scheduleOf({ ctx, directory, volumesDir }: TestService): Promise<Schedule> {
  const target = mkdtempSync(join(tmpdir(), 'sandkeep-scheduled-'));
  onTestFinished(() => rmSync(target, { recursive: true, force: true }));
  const { rows } = await ctx.pool.query<{ id: string }>('select id from instance');
  return {
    directory: target,
    keep: 2,
    encryptTo: [],
    instanceId: rows[0]!.id,
    places: {
      dataDir: directory,
      volumesDir,
      secretKeysFile: join(directory, 'secret-keys'),
      eventKeysFile: join(directory, 'event-keys'),
    },
  };
}

const count = ({ logs }: TestService, message: string) =>
  logs.filter((line) => line.includes(message)).length;

describe.skipIf(process.platform !== 'linux')('scheduled backups', () => {
  test('keep the newest, and touch no other file', async () => {
    const service = await startForTest({ settings: { backupEveryMs: 50 } });
    service.ctx.keyring();
    const schedule = await scheduleOf(service);
    const others = [
      'notes.txt',
      'sandkeep-20200101T000000Z.tar.gz',
      'sandkeep-scheduled-01a210a0-d8ce-7654-8000-0382f2de5f68-20200101T000000000Z.tar.gz',
      `sandkeep-scheduled-${schedule.instanceId}-20200101T000000000Z.tar.gz.old`,
    ];
    for (const name of others) writeFileSync(join(schedule.directory, name), 'not of the schedule');
    const draft = `sandkeep-scheduled-${schedule.instanceId}-20200101T000000000Z.tar.gz.0123456789ab`;
    writeFileSync(join(schedule.directory, draft), 'of a killed process');
    // A clock that was set back: the new files have earlier names.
    const late = `sandkeep-scheduled-${schedule.instanceId}-29990101T000000000Z.tar.gz`;
    writeFileSync(join(schedule.directory, late), 'of a wrong clock');

    const backups = await startScheduledBackups(service.ctx, schedule);
    await until(
      () => Promise.resolve(count(service, MADE)),
      (made) => made >= 4,
      120_000,
    );
    await backups.stop();
    const own = readdirSync(schedule.directory).filter((name) => !others.includes(name));
    expect(readdirSync(schedule.directory)).toEqual(expect.arrayContaining(others));
    expect(own).toHaveLength(2);
    expect(own).toContain(late);
    const newest = own.find((name) => name !== late);
    const { header } = await verifyArchive(join(schedule.directory, newest!));
    expect(header.database.instanceId).toBe(schedule.instanceId);
    expect((await readBackupAge(service.ctx.pool)).made).toBe(true);
    expect(count(service, FAILED)).toBe(0);
  });

  test('are logged when they fail, delete nothing, and go on when the cause is gone', async () => {
    const service = await startForTest({ settings: { backupEveryMs: 50 } });
    service.ctx.keyring();
    const schedule = await scheduleOf(service);
    await expect(
      startScheduledBackups(service.ctx, { ...schedule, directory: '/nonexistent' }),
    ).rejects.toThrow(/does not exist: create it/);
    const backups = await startScheduledBackups(service.ctx, schedule);
    await until(
      () => Promise.resolve(count(service, MADE)),
      (made) => made >= 2,
      120_000,
    );
    renameSync(schedule.directory, `${schedule.directory}.away`);
    await until(
      () => Promise.resolve(count(service, FAILED)),
      (failed) => failed >= 1,
      120_000,
    );
    expect(readdirSync(`${schedule.directory}.away`).length).toBeGreaterThan(0);
    rmSync(`${schedule.directory}.away`, { recursive: true });
    mkdirSync(schedule.directory);
    const before = count(service, MADE);
    await until(
      () => Promise.resolve(count(service, MADE)),
      (made) => made > before,
      120_000,
    );
    await backups.stop();
  });

  test('from two processes never run at the same time', async () => {
    const service = await startForTest({ settings: { backupEveryMs: 100 } });
    const beside = await startForTest({ settings: { backupEveryMs: 100 }, beside: service, worker: false });
    service.ctx.keyring();
    const schedule = await scheduleOf(service);
    const both = [
      await startScheduledBackups(service.ctx, schedule),
      await startScheduledBackups(beside.ctx, schedule),
    ];
    const made = () => count(service, MADE) + count(beside, MADE);
    await until(
      () => Promise.resolve(made()),
      (all) => all >= 6,
      120_000,
    );
    await Promise.all(both.map((one) => one.stop()));
    expect(count(service, FAILED) + count(beside, FAILED)).toBe(0);
    const times = [...service.logs, ...beside.logs]
      .filter((line) => line.includes(MADE))
      .map((line) => JSON.parse(line) as { time: string; ms: number })
      .map(({ time, ms }) => ({ from: Date.parse(time) - ms, to: Date.parse(time) }))
      .toSorted((a, b) => a.from - b.from);
    // The log rounds to a millisecond.
    for (const [index, { to }] of times.slice(0, -1).entries())
      expect(times[index + 1]!.from).toBeGreaterThan(to - 5);
  });
});
