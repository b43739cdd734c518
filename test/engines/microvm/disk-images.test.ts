import { execFileSync } from 'node:child_process';
import {
  copyFileSync,
  linkSync,
  mkdirSync,
  readFileSync,
  renameSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { beforeAll, expect, test } from 'vitest';
import { openDiskImage, type ReserveImage } from '../../../src/engines/microvm/disks/disk-image.js';
import type { DiskImageMount } from '../../../src/spec/run-spec.js';
import { newId } from '../../../src/lib/uuid.js';
import { VolumeStore } from '../../../src/volumes/storage/store.js';
import { makeFolder } from '../../support/erofs.js';
import { describeMicrovm } from '../../support/microvm/needs.js';

type Format = DiskImageMount['format'];

const ATTEMPTS = 20;

describeMicrovm('the file of a disk image', () => {
  const orgId = newId();
  const volumeId = newId();
  let made: string;
  beforeAll(() => {
    made = execFileSync('mktemp', ['--directory'], { encoding: 'utf8' }).trim();
    const image = (...args: string[]) => execFileSync('qemu-img', ['create', '-q', ...args], { cwd: made });
    // The program measures the speed of its keys, and gives up where the kernel counted no time for it.
    const encrypted = (...args: string[]) => {
      for (let left = ATTEMPTS; left > 1; left -= 1) {
        try {
          image(...args);
          return;
        } catch {
          continue;
        }
      }
      image(...args);
    };
    image('-f', 'raw', 'disk.raw', '1M');
    image('-f', 'qcow2', '-o', 'compat=0.10', 'version2.qcow2', '1M');
    image(
      '-f',
      'qcow2',
      '-o',
      'lazy_refcounts=on,extended_l2=on,compression_type=zstd',
      'version3.qcow2',
      '1M',
    );
    image('-f', 'qcow2', '-b', 'version3.qcow2', '-F', 'qcow2', 'backed.qcow2');
    image('-f', 'qcow2', '-b', '/etc/passwd', '-F', 'raw', 'passwd.qcow2');
    image('-f', 'qcow2', '-o', 'data_file=outside.raw', 'data-file.qcow2', '1M');
    encrypted(
      '-f',
      'qcow2',
      '-o',
      'encrypt.format=luks,encrypt.iter-time=10,encrypt.key-secret=key',
      '--object',
      'secret,id=key,data=key',
      'luks.qcow2',
      '1M',
    );
    for (const kind of ['monolithicSparse', 'streamOptimized', 'monolithicFlat', 'twoGbMaxExtentSparse'])
      image('-f', 'vmdk', '-o', `subformat=${kind}`, `${kind}.vmdk`, '1M');
    image('-f', 'vmdk', '-b', 'monolithicSparse.vmdk', '-F', 'vmdk', 'backed.vmdk');
    image('-f', 'vdi', 'disk.vdi', '1M');
  });

  function volume() {
    const root = makeFolder();
    const data = join(root, orgId, volumeId, 'data');
    mkdirSync(data, { recursive: true });
    execFileSync('cp', ['--recursive', `${made}/.`, data]);
    const store = new VolumeStore(root);
    const open = async (
      host: string,
      format: Format,
      readonly = false,
      reserve: ReserveImage = () => undefined,
    ) => {
      const mount = {
        type: 'disk_image',
        host,
        guest: '/d',
        format,
        volumeId,
        options: { readonly },
      } as DiskImageMount;
      const handle = await openDiskImage(store, orgId, mount, { field: 'mounts[0]', reserve });
      await handle.close();
      return 'opened';
    };
    return { data, open };
  }

  const refused = async (opened: Promise<string>) => opened.catch((error: Error) => error.message);

  test('is opened in its own format, in a folder of the volume too', async () => {
    const { data, open } = volume();
    mkdirSync(join(data, 'folder'));
    copyFileSync(join(data, 'disk.raw'), join(data, 'folder/disk'));
    writeFileSync(
      join(data, 'looks-like.qcow2'),
      readFileSync(join(data, 'backed.qcow2')).subarray(0, 65_536),
    );
    const files: [string, Format][] = [
      ['disk.raw', 'raw'],
      ['/folder/disk', 'raw'],
      // The bytes of a raw disk may look like any format.
      ['looks-like.qcow2', 'raw'],
      ['version2.qcow2', 'qcow2'],
      ['version3.qcow2', 'qcow2'],
      ['monolithicSparse.vmdk', 'vmdk'],
    ];
    for (const [file, format] of files) {
      expect(await open(file, format), file).toBe('opened');
      expect(await open(file, format, true), file).toBe('opened');
    }
  });

  test('is refused when it names another file, or is of another format', async () => {
    const { data, open } = volume();
    const edited = (name: string, from: string, change: (bytes: Buffer) => void) => {
      const bytes = readFileSync(join(data, from));
      change(bytes);
      writeFileSync(join(data, name), bytes);
    };
    edited('extents.vmdk', 'monolithicSparse.vmdk', (bytes) => bytes.writeBigUInt64LE(0n, 12));
    edited('moved.vmdk', 'monolithicSparse.vmdk', (bytes) => bytes.writeBigUInt64LE(1n << 40n, 28));
    edited('unknown.qcow2', 'version3.qcow2', (bytes) => bytes.writeBigUInt64BE(1n << 40n, 72));
    edited('corrupt.qcow2', 'version3.qcow2', (bytes) => bytes.writeBigUInt64BE(2n, 72));
    edited('length.qcow2', 'version3.qcow2', (bytes) => bytes.writeUInt32BE(1 << 30, 100));
    edited('cluster.qcow2', 'version3.qcow2', (bytes) => bytes.writeUInt32BE(63, 20));
    edited('extension.qcow2', 'version3.qcow2', (bytes) =>
      bytes.writeUInt32BE(0x44415441, bytes.readUInt32BE(100)),
    );
    edited('version4.qcow2', 'version3.qcow2', (bytes) => bytes.writeUInt32BE(4, 4));
    truncateSync(join(data, 'disk.raw'), 1_000);
    writeFileSync(join(data, 'empty'), '');
    const cases: [string, Format, string][] = [
      ['backed.qcow2', 'qcow2', 'it names another file, and a disk must be in one file'],
      ['passwd.qcow2', 'qcow2', 'it names another file, and a disk must be in one file'],
      ['data-file.qcow2', 'qcow2', 'it names another file, and a disk must be in one file'],
      ['extension.qcow2', 'qcow2', 'it names another file, and a disk must be in one file'],
      ['luks.qcow2', 'qcow2', 'it is encrypted'],
      ['unknown.qcow2', 'qcow2', 'it has features that are not known here'],
      ['corrupt.qcow2', 'qcow2', 'it is marked as corrupt'],
      ['length.qcow2', 'qcow2', 'its header is damaged'],
      ['cluster.qcow2', 'qcow2', 'its header is damaged'],
      ['version4.qcow2', 'qcow2', 'it is qcow2 of the unknown version 4'],
      ['monolithicSparse.vmdk', 'qcow2', 'it is not qcow2'],
      ['empty', 'qcow2', 'it is not qcow2'],
      ['disk.vdi', 'vmdk', 'it is not VMDK in one sparse file'],
      ['monolithicFlat.vmdk', 'vmdk', 'it is not VMDK in one sparse file'],
      ['twoGbMaxExtentSparse.vmdk', 'vmdk', 'it is not VMDK in one sparse file'],
      ['streamOptimized.vmdk', 'vmdk', 'it is VMDK for streams'],
      ['backed.vmdk', 'vmdk', 'it names another file as its parent'],
      ['extents.vmdk', 'vmdk', 'it names other files'],
      ['moved.vmdk', 'vmdk', 'its header is damaged'],
      ['empty', 'raw', 'its size must be a multiple of 512 bytes'],
      ['disk.raw', 'raw', 'its size must be a multiple of 512 bytes'],
    ];
    for (const [file, format, words] of cases) {
      const message = await refused(open(file, format));
      expect(message, file).toMatch(`mounts[0]: the disk image ${file} cannot be used: ${words}`);
    }
  });

  test('is reserved before its header is read, by its file and the folders that it is in', async () => {
    const { data, open } = volume();
    renameSync(join(data, 'disk.raw'), join(data, 'disk'));
    const seen: unknown[] = [];
    const used: ReserveImage = (use) => {
      seen.push(use);
      return 'the sandbox one uses it';
    };
    expect(await refused(open('disk', 'qcow2', false, used))).toBe(
      'mounts[0]: the disk image disk cannot be used: the sandbox one uses it',
    );
    mkdirSync(join(data, 'one/two'), { recursive: true });
    copyFileSync(join(data, 'disk'), join(data, 'one/two/disk'));
    await refused(open('/one/two/disk', 'raw', true, used));
    // Another sandbox could mount the folder of the other name.
    linkSync(join(data, 'disk'), join(data, 'link'));
    expect(await refused(open('disk', 'raw', true, used))).toContain(
      'it has several names (hard links): copy it',
    );
    const idOf = (path: string) => {
      const { dev, ino } = statSync(join(data, path), { bigint: true });
      return `${dev}:${ino}`;
    };
    expect(seen).toEqual([
      { file: idOf('disk'), isReadonly: false, folders: [idOf('')] },
      { file: idOf('one/two/disk'), isReadonly: true, folders: [idOf('one/two'), idOf('one'), idOf('')] },
    ]);
  });

  test('is a file of the volume alone, through no symlink', async () => {
    const { data, open } = volume();
    symlinkSync('/etc/passwd', join(data, 'passwd'));
    symlinkSync('/etc', join(data, 'etc'));
    execFileSync('mkfifo', [join(data, 'pipe')]);
    execFileSync('mknod', [join(data, 'device'), 'b', '7', '0']);
    const cases: [string, RegExp][] = [
      ['passwd', /it is no file/],
      ['etc/passwd', /is a symbolic link, which is not followed/],
      ['../../../etc/passwd', /must not contain "\.\."/],
      ['none', /does not exist/],
      ['/', /it is no file/],
      ['pipe', /it is no file/],
      ['device', /it is no file/],
    ];
    for (const [file, words] of cases) {
      for (const readonly of [true, false])
        expect(await refused(open(file, 'raw', readonly)), file).toMatch(words);
    }
  });
});
