import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, openSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { isRunning } from '../../src/engines/microvm/processes.js';
import { readRecord } from '../../src/engines/microvm/read-record.js';
import { requestStop } from '../../src/engines/microvm/supervisor.js';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { describeSupervisor, SHELL, USER } from '../support/fake-monitor.js';
import { until } from '../support/polling.js';

const SUPERVISE = join(PACKAGE_ROOT, 'guest', `supervise-${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}`);

describeSupervisor('the end of a supervisor', () => {
  test('a stop that meets the end of the supervisor is over when the connection is', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'sandkeep-stopped-'));
    // Bytes that nobody has read make the kernel reset the connection.
    const ending = createServer({ pauseOnConnect: true }, (socket) => {
      socket.on('error', () => undefined);
      setTimeout(() => socket.destroy(), 200);
    });
    ending.listen(join(directory, 'supervisor.sock'));
    await once(ending, 'listening');
    try {
      expect(await requestStop(directory, 0)).toBe(true);
    } finally {
      ending.close();
      rmSync(directory, { recursive: true });
    }
  });

  test('ends with its service where it shall, and takes the monitor with it', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'sandkeep-ending-'));
    const script = `"$0" --user=${USER} --service=$$ --changes=3 --inherited=6 --log-limit=4096 --file-mib=1 -- \
      ${SHELL} -c 'read -r never <&6' & wait`;
    const service = spawn(SHELL, ['-c', script, SUPERVISE], {
      cwd: directory,
      stdio: ['ignore', 'ignore', 'inherit', openSync(join(directory, 'changes'), 'a')],
    });
    const record = async () => readRecord({ record: join(directory, 'record') });
    try {
      const found = (await until(record, (made) => made?.monitor !== undefined))!;
      expect([found.supervisor, found.monitor!].map(isRunning)).toEqual([true, true]);
      service.kill('SIGKILL');
      await until(
        async () => Promise.resolve([found.supervisor, found.monitor!].map(isRunning)),
        (running) => !running.includes(true),
      );
    } finally {
      service.kill('SIGKILL');
      rmSync(directory, { recursive: true });
    }
  });
});
