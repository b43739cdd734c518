import { readFileSync } from 'node:fs';

const CPU_INFO = '/proc/cpuinfo';

/**
 * The command line of the kernel for the machine type `microvm`. A panic ends the run: the monitor gets no reboot. The
 * serial port has only what the kernel says when something is wrong.
 */
export function kernelOptions({ isEmulated, writes }: { isEmulated: boolean; writes?: Writes }): string {
  const options = ['console=ttyS0', 'quiet', 'panic=-1', 'reboot=t'];
  return [
    ...options,
    ...(writes ? cacheOptions(writes) : []),
    ...(isEmulated ? emulationOptions() : []),
  ].join(' ');
}

/** MiB a second to the disk, or 0, and the memory of the machine. */
interface Writes {
  diskWritesMib: number;
  memoryMib: number;
}

/**
 * A stop has a grace of seconds, in which the kernel writes what programs have left in its cache. By default a fifth of
 * the memory may wait there, which a bound of writes would make last for minutes.
 */
function cacheOptions({ diskWritesMib, memoryMib }: Writes): string[] {
  if (diskWritesMib === 0) return [];
  const bytes = Math.floor(Math.min(diskWritesMib, memoryMib / 5) * 1024 * 1024);
  return [`sysctl.vm.dirty_bytes=${bytes}`, `sysctl.vm.dirty_background_bytes=${Math.floor(bytes / 4)}`];
}

/**
 * This machine type has no timer by which an emulated processor can measure its time stamp counter: the kernel would
 * wait for it, mostly for ever. The counter is that of the real processor. A busy machine delays interrupts, for which
 * the kernel would no longer trust the counter.
 */
function emulationOptions(): string[] {
  const text = readFileSync(CPU_INFO, 'utf8');
  const [, measured] = /^cpu MHz\s*: ([\d.]+)$/m.exec(text) ?? [];
  const [, nominal] = /^model name\s*:.* ([\d.]+)GHz$/m.exec(text) ?? [];
  // A virtual machine shows the counter. Another one shows the clock of this moment, which differs from it.
  const isVirtual = /^flags\s*:.*\bhypervisor\b/m.test(text);
  const khz = nominal === undefined || isVirtual ? Number(measured) * 1_000 : Number(nominal) * 1_000_000;
  return [...(khz > 0 ? [`tsc_early_khz=${Math.round(khz)}`] : []), 'tsc=reliable'];
}
