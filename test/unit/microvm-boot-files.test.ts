import { Buffer } from 'node:buffer';
import { mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { readFile, readdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { bootFiles } from '../../src/engines/microvm/boot/boot-files.js';
import { kernelOptions } from '../../src/engines/microvm/boot/kernel-options.js';

const RELEASE = '9.9.9-test';
const ELF = Buffer.concat([Buffer.from('\x7fELF'), Buffer.alloc(5_000, 7)]);
const NEEDED = [
  'virtio_pci',
  'virtio_mmio',
  'virtio_blk',
  'virtio_console',
  'erofs',
  'overlay',
  'virtiofs',
  'virtio_net',
];

/** A bzImage with a payload of gzip. */
function bzImage(payload: Buffer): Buffer {
  const header = Buffer.alloc(1024 + 100);
  header.writeUInt8(1, 0x1f1);
  header.write('HdrS', 0x202);
  header.writeUInt16LE(0x20f, 0x206);
  header.writeUInt32LE(100, 0x248);
  header.writeUInt32LE(payload.length, 0x24c);
  return Buffer.concat([header, payload]);
}

/** A module as far as anybody reads it. */
function moduleNeeding(...names: string[]): Buffer {
  return Buffer.from(`\x7fELF\0license=GPL\0depends=${names.join(',')}\0softdep=pre: soft-one\0name=x\0`);
}

/** The paths, modes and contents of an archive. */
function readCpio(archive: Buffer): Map<string, { mode: number; content: Buffer }> {
  const files = new Map<string, { mode: number; content: Buffer }>();
  for (let at = 0; ;) {
    expect(archive.toString('latin1', at, at + 6)).toBe('070701');
    const field = (index: number) =>
      Number.parseInt(archive.toString('latin1', at + 6 + index * 8, at + 14 + index * 8), 16);
    const [mode, size, nameSize] = [field(1), field(6), field(11)];
    const path = archive.toString('utf8', at + 110, at + 110 + nameSize - 1);
    const begin = at + 110 + nameSize + (-(110 + nameSize) & 3);
    if (path === 'TRAILER!!!') return files;
    files.set(path, { mode, content: archive.subarray(begin, begin + size) });
    at = begin + size + (-size & 3);
  }
}

describe('the boot files of virtual machines', () => {
  let directory: string;
  let kernel: string;
  let modules: string;
  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'sandkeep-boot-files-'));
    onTestFinished(() => rmSync(directory, { recursive: true }));
    kernel = join(directory, 'boot', `vmlinuz-${RELEASE}`);
    modules = join(directory, 'lib/modules', RELEASE);
    mkdirSync(join(directory, 'boot'));
    mkdirSync(join(modules, 'kernel/drivers'), { recursive: true });
    writeFileSync(kernel, bzImage(gzipSync(ELF)));
    writeFileSync(
      join(modules, 'modules.builtin'),
      'kernel/fs/ext4/ext4.ko\nkernel/fs/overlayfs/overlay.ko\n',
    );
    for (const name of NEEDED)
      if (name !== 'overlay') writeFileSync(join(modules, 'kernel/drivers', `${name}.ko`), moduleNeeding());
    writeFileSync(join(modules, 'kernel/soft-one.ko.gz'), gzipSync(moduleNeeding()));
    writeFileSync(join(modules, 'kernel/drivers/virtio_net.ko'), moduleNeeding('net_failover'));
    writeFileSync(join(modules, 'kernel/net_failover.ko.gz'), gzipSync(moduleNeeding('fail-over')));
    writeFileSync(join(modules, 'kernel/fail-over.ko'), moduleNeeding());
  });

  const make = () => bootFiles({ directory: join(directory, 'cache'), kernel });

  test('are the unpacked kernel, and the modules in the order of loading', async () => {
    const files = await make();
    expect((await readFile(files.kernel)).equals(ELF)).toBe(true);
    expect(statSync(files.kernel).mode & 0o777).toBe(0o444);
    expect(files.modules.network).toEqual(['fail_over.ko', 'net_failover.ko', 'virtio_net.ko']);
    expect(files.modules.disk).toEqual([]);
    const archive = readCpio(await readFile(files.initramfs));
    expect(archive.get('modules/base')!.content.toString()).toBe(
      ['soft_one', 'virtio_pci', 'virtio_mmio', 'virtio_blk', 'virtio_console', 'erofs']
        .map((name) => `${name}.ko\n`)
        .join(''),
    );
    expect(archive.get('modules/net_failover.ko')!.content.equals(moduleNeeding('fail-over'))).toBe(true);
    expect(archive.get('init')!.mode).toBe(0o100500);
    expect(archive.get('programs/init')!.mode).toBe(0o100555);
    expect(archive.get('dev/console')!.mode).toBe(0o020600);
    expect([...archive.keys()].filter((path) => path.includes('ext4'))).toEqual([]);
  });

  test('are kept by their content, and replaced with the kernel', async () => {
    const [first, second] = await Promise.all([make(), make()]);
    expect(second).toEqual(first);
    expect(await readdir(join(directory, 'cache'))).toHaveLength(1);
    writeFileSync(kernel, ELF.subarray(0, 100));
    const third = await make();
    expect(third.kernel).not.toBe(first.kernel);
    expect((await readFile(third.kernel)).equals(ELF.subarray(0, 100))).toBe(true);
    expect(await readdir(join(directory, 'cache'))).toHaveLength(1);
  });

  test('need a kernel with its modules', async () => {
    await expect(bootFiles({ directory, kernel: join(directory, 'none') })).rejects.toThrow(
      `there is no kernel at ${join(directory, 'none')}`,
    );
    rmSync(join(modules, 'kernel/drivers/virtiofs.ko'));
    await expect(make()).rejects.toThrow(`lacks the module virtiofs: name another with --microvm-kernel`);
    rmSync(modules, { recursive: true });
    await expect(make()).rejects.toThrow(/has no modules at .*: install the whole package of the kernel/);
  });

  test('have a command line for real and for emulated processors', () => {
    expect(kernelOptions({ isEmulated: false })).toBe('console=ttyS0 quiet panic=-1 reboot=t');
    expect(kernelOptions({ isEmulated: true })).toMatch(/ tsc_early_khz=\d{6,7} tsc=reliable$/);
  });
});
