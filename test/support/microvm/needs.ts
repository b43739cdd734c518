import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { describe } from 'vitest';

/** Where `.ci/run` keeps the kernel: see get-kernel.sh. */
const CACHE = join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'sandkeep-kernel/boot');
const PACKAGES: Readonly<Record<string, string>> = {
  'qemu-system-x86_64': 'qemu-system-x86',
  'qemu-img': 'qemu-utils',
  'mkfs.erofs': 'erofs-utils',
  mke2fs: 'e2fsprogs',
  xz: 'xz-utils',
  curl: 'curl',
};

/** The kernel of the machines of tests. */
export const kernel = process.env['SANDKEEP_TEST_KERNEL'] ?? newestIn(CACHE) ?? newestIn('/boot');
/** SANDKEEP_TEST_KVM=required: the machines of tests run with KVM. Default: their processors are emulated. */
export const isEmulated = process.env['SANDKEEP_TEST_KVM'] !== 'required';
/** The flags of `sandkeep serve` for the machines of tests. */
export const onMachines = (): string[] => [
  '--runtime',
  'microvm',
  ...(isEmulated ? ['--microvm-emulation'] : []),
  '--microvm-kernel',
  kernel!,
];
/** Debian 12 has it in the first place, and later releases in the other. */
const FILE_SERVERS = ['/usr/lib/qemu/virtiofsd', '/usr/libexec/virtiofsd'];
const reason = whyNot();

/**
 * Tests that boot virtual machines. Without its programs they are skipped with the reason; with
 * SANDKEEP_TEST_MICROVM=required, as in CI, they fail.
 */
export const describeMicrovm =
  reason === undefined || process.env['SANDKEEP_TEST_MICROVM'] === 'required'
    ? describe
    : (name: string, body: () => void) => describe.skip(`${name} — SKIPPED: ${reason}`, body);

if (reason !== undefined) console.warn(`the tests that boot virtual machines are SKIPPED: ${reason}`);

function whyNot(): string | undefined {
  if (process.arch !== 'x64') return 'they are for the processor x86_64';
  if (kernel === undefined)
    return 'there is no kernel: test/support/microvm/get-kernel.sh ~/.cache/sandkeep-kernel';
  if (!existsSync('/bin/busybox'))
    return 'there is no /bin/busybox (on Debian: apt-get install busybox-static)';
  if (!FILE_SERVERS.some((path) => existsSync(path)))
    return 'there is no virtiofsd (on Debian: apt-get install virtiofsd)';
  const missing = Object.keys(PACKAGES).filter((program) => spawnSync(program, ['--version']).error);
  const packages = missing.map((program) => PACKAGES[program]);
  if (missing.length === 0) return undefined;
  return `there is no ${missing.join(' and no ')} (on Debian: apt-get install ${packages.join(' ')})`;
}

function newestIn(directory: string): string | undefined {
  const names = existsSync(directory)
    ? readdirSync(directory).filter((name) => name.startsWith('vmlinuz-'))
    : [];
  const newest = names.toSorted(new Intl.Collator('en', { numeric: true }).compare).at(-1);
  return newest === undefined ? undefined : join(directory, newest);
}
