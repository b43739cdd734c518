import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import type { Finding } from '../../src/engine/finding.js';
import { systemOf } from '../../src/engine/host-system.js';
import { connectMicrovm } from '../../src/engines/microvm/connect.js';
import { examineMicrovm } from '../../src/engines/microvm/examine.js';
import { VolumeStore } from '../../src/volumes/storage/store.js';
import { describeMicrovm, kernel } from '../support/microvm/needs.js';
import { ENGINE_OPTIONS } from '../support/microvm/service.js';

describeMicrovm('sandkeep doctor on virtual machines', () => {
  const dataDir = mkdtempSync(join(tmpdir(), 'sandkeep-doctor-'));
  afterAll(() => rmSync(dataDir, { recursive: true, force: true }));
  const debian = systemOf({
    platform: 'linux',
    release: 'ID=debian\nPRETTY_NAME="Debian 12"',
    glibc: '2.36',
  });

  async function examine(
    options: { microvmEmulation?: boolean; microvmKernel?: string } = {},
    isRequired = true,
  ) {
    const { findings } = await examineMicrovm(
      { microvmEmulation: true, microvmKernel: kernel, ...options },
      {
        system: debian,
        dataDir,
        volumesDir: dataDir,
        hasOwnDatabase: true,
        instanceId: undefined,
        isRequired,
      },
    );
    return new Map(findings.map((finding): [string, Finding] => [finding.check, finding]));
  }

  test('finds the programs and the kernel, and calls emulation by its name', async () => {
    const found = await examine();
    const states = [...found.values()].map(({ check, state }) => `${check}: ${state}`);
    expect(states.slice(0, 5)).toEqual([
      'root: ok',
      'monitor: ok',
      'disk programs: ok',
      'kernel of machines: ok',
      'kvm: broken',
    ]);
    expect(found.get('monitor')!.found).toMatch(/^QEMU \d+\.\d+/);
    expect(found.get('kvm')!.found).toContain('emulated');
    expect(found.get('volumes')!.found).toMatch(/^virtiofsd \d+\.\d+/);
    for (const { state, remedy } of found.values()) if (state !== 'ok') expect(remedy).toMatch(/\S/);
  });

  test('names a kernel that is missing with the command that installs one', async () => {
    const { state, found, remedy } = (await examine({ microvmKernel: '/no/vmlinuz' }, false)).get(
      'kernel of machines',
    )!;
    expect([state, found]).toEqual(['missing', 'there is no kernel at /no/vmlinuz']);
    expect(remedy).toContain('apt-get install linux-image-cloud-amd64');
  });

  test('refuses to serve with a kernel that is none, in the same words', async () => {
    const file = join(dataDir, 'vmlinuz-0');
    writeFileSync(file, 'no kernel');
    const options = { ...ENGINE_OPTIONS, microvmEmulation: true, microvmKernel: file };
    const surroundings = { instanceId: 'doctor', dataDir, volumes: new VolumeStore(dataDir) };
    await expect(connectMicrovm(options, surroundings)).rejects.toThrow(/has no modules at/);
  });
});
