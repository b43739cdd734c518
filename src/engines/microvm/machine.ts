import { execFile } from 'node:child_process';
import { accessSync, constants, statSync } from 'node:fs';
import { arch } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { ExplainedError } from '../../lib/explained-error.js';

/** The needs of virtual machines, as far as they can be checked without starting one. */

export const KVM_DEVICE = '/dev/kvm';
const MONITORS: Record<string, string> = { x64: 'qemu-system-x86_64' };
const DIRECTORIES = ['/usr/local/bin', '/usr/bin', '/usr/local/sbin', '/usr/sbin', '/bin', '/sbin'];

/** The name of the monitor. Undefined: none for this processor. */
export function monitorName(): string | undefined {
  return MONITORS[arch()];
}

/** The path of a program. Undefined: it is not installed. */
export function findProgram(name: string): string | undefined {
  return DIRECTORIES.map((directory) => join(directory, name)).find(isExecutable);
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return statSync(file).isFile();
  } catch {
    return false;
  }
}

/** Throws ExplainedError. */
export function requireMonitor(): string {
  const name = monitorName();
  if (name === undefined)
    throw new ExplainedError(
      `the microvm runtime has no monitor for the processor ${arch()}: use --runtime docker`,
    );
  const found = findProgram(name);
  if (found === undefined)
    throw new ExplainedError(
      `${name} is not installed, which the microvm runtime needs: "sandkeep doctor --runtime microvm" has the command`,
    );
  return found;
}

export async function versionOf(monitor: string): Promise<string> {
  const { stdout } = await promisify(execFile)(monitor, ['--version'], { timeout: 30_000 });
  return /version (\d+(?:\.\d+)+)/.exec(stdout)?.[1] ?? 'of an unknown version';
}

export interface KvmDevice {
  /** That a monitor needs to open it. Undefined: every user may. */
  group: number | undefined;
}

/** Throws ExplainedError: monitors cannot open the device. */
export function requireKvm(): KvmDevice {
  const found = statSync(KVM_DEVICE, { throwIfNoEntry: false });
  if (!found)
    throw new ExplainedError(
      `there is no ${KVM_DEVICE}: switch on the virtualization of the processor (or nested virtualization in a virtual machine), and load the module kvm_intel or kvm_amd; for tests alone, --microvm-emulation needs none`,
    );
  const isForAll = (found.mode & 0o006) === 0o006;
  const isForGroup = (found.mode & 0o060) === 0o060 && found.gid !== 0;
  if (isForAll) return { group: undefined };
  if (isForGroup) return { group: found.gid };
  throw new ExplainedError(
    `only root may open ${KVM_DEVICE}, and monitors are not root: groupadd --force --system kvm && chgrp kvm ${KVM_DEVICE} && chmod 0660 ${KVM_DEVICE}`,
  );
}
