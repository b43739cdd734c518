import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';

const BUSYBOX = '/bin/busybox';

/** A base of busybox with all its applets, and a /tmp for every user. Returns its file. */
export function makeBusyboxBase(directory: string): string {
  const root = mkdtempSync(join(directory, 'root-'));
  for (const name of ['bin', 'etc', 'tmp']) mkdirSync(join(root, name), { mode: 0o755 });
  cpSync(BUSYBOX, join(root, 'bin/busybox'));
  const applets = execFileSync(BUSYBOX, ['--list'], { encoding: 'utf8' }).trim().split('\n');
  for (const applet of applets) if (applet !== 'busybox') symlinkSync('busybox', join(root, 'bin', applet));
  writeFileSync(join(root, 'etc/passwd'), 'root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n');
  writeFileSync(join(root, 'etc/group'), 'root:x:0:\nann:x:1000:\nteam:x:2000:ann\n');
  chmodSync(join(root, 'tmp'), 0o1777);
  chmodSync(root, 0o755);
  const file = join(directory, 'base.erofs');
  execFileSync('mkfs.erofs', ['--all-root', file, root], { stdio: 'ignore' });
  rmSync(root, { recursive: true });
  return file;
}

/** A disk with an empty file system. Returns its file. */
export function makeDisk(directory: string, sizeMib = 256): string {
  const raw = join(directory, 'disk.raw');
  const file = join(directory, 'disk.qcow2');
  writeFileSync(raw, '');
  truncateSync(raw, sizeMib * 1024 * 1024);
  execFileSync('mke2fs', ['-q', '-t', 'ext4', '-E', 'nodiscard,lazy_itable_init=1,root_owner=0:0', raw]);
  execFileSync('qemu-img', ['convert', '-O', 'qcow2', raw, file]);
  rmSync(raw);
  return file;
}
