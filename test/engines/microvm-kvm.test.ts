import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { Changes } from '../../src/engines/microvm/changes.js';
import { explainNoKvm } from '../../src/engines/microvm/kvm-probe.js';
import { findProgram } from '../../src/engines/microvm/machine.js';
import { untilReady } from '../../src/engines/microvm/until-ready.js';
import { describeSupervisor, START, supervise } from '../support/fake-monitor.js';
import { describeMicrovm } from '../support/microvm/needs.js';

const WITH_VIRTUALIZATION = 'processor\t: 0\nflags\t\t: fpu svm sse\n';

describe('KVM that starts no virtual machine', () => {
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-kvm-'));
  afterAll(() => rmSync(directory, { recursive: true, force: true }));

  function monitorThat(script: string): string {
    const file = join(directory, `monitor-${script.length}`);
    writeFileSync(file, `#!/bin/sh\n${script}\n`);
    chmodSync(file, 0o755);
    return file;
  }

  test('is found by the processor, which has no virtualization', async () => {
    const monitor = monitorThat('exit 0');
    const cpuInfo = 'flags\t\t: fpu hypervisor vmmcall sse\nvmx flags\t: vnmi\nmodel name\t: svm\n';
    expect(await explainNoKvm({ monitor, cpuInfo })).toContain('no vmx or svm in /proc/cpuinfo');
    expect(await explainNoKvm({ monitor, cpuInfo: WITH_VIRTUALIZATION })).toBeUndefined();
  });

  test('is found by the monitor, whose words say why', async () => {
    const monitor = monitorThat('echo "monitor: failed to set MSR 0x10a" >&2; echo more >&2; kill -ABRT $$');
    expect(await explainNoKvm({ monitor, cpuInfo: WITH_VIRTUALIZATION })).toBe(
      'QEMU makes no virtual machine with KVM (monitor: failed to set MSR 0x10a)',
    );
  });
});

describeMicrovm('the probe of KVM', () => {
  test('ends a real monitor that works', async () => {
    const monitor = findProgram('qemu-system-x86_64')!;
    expect(await explainNoKvm({ monitor, isEmulated: true })).toBeUndefined();
  });
});

describeSupervisor('a start whose virtual machine ends at once', () => {
  async function failureOf(script: string): Promise<Error> {
    const vm = supervise(script);
    const changes = new Changes(vm.directory);
    try {
      const { signal } = new AbortController();
      return await untilReady({ changes, isEmulated: true }, vm.places, { signal, ended: vm.ended }).then(
        () => new Error('it has become ready'),
        (error: Error) => error,
      );
    } finally {
      changes.close();
    }
  }

  test('fails with the last words of the monitor for the log, and without them for the caller', async () => {
    const words = 'monitor: failed to set MSR 0x10a';
    const error = await failureOf(`echo first >&2; printf '${words}\\033[2J\\n' >&2; exit 134`);
    expect(error.message).toContain('the operator finds why in the log of the service');
    expect(error.message).not.toContain('MSR');
    expect((error.cause as Error).message).toBe(`first | ${words}?[2J`);
  });

  test('puts at most 2 KiB of a long console into the log', async () => {
    const error = await failureOf(`head -c 100000 /dev/zero | tr '\\0' x >&2; echo end >&2; exit 1`);
    const { message } = error.cause as Error;
    expect(message).toMatch(/^x+ \| end$|^x+end$/);
    expect(message.length).toBeLessThanOrEqual(2_048);
  });

  test('fails in the words of the first program, where it has said some', async () => {
    const error = await failureOf(`${START} echo 'failed there is no program' >&7; sleep 0.1; exit 0`);
    expect(error.message).toBe('there is no program');
  });
});
