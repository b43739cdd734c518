import { readFileSync } from 'node:fs';

const CPU_INFO = '/proc/cpuinfo';

/**
 * The command line of the kernel for the machine type `microvm`. A panic ends the run: the monitor gets no reboot. The
 * serial port has only what the kernel says when something is wrong.
 */
export function kernelOptions({ isEmulated }: { isEmulated: boolean }): string {
  const options = ['console=ttyS0', 'quiet', 'panic=-1', 'reboot=t'];
  return [...options, ...(isEmulated ? emulationOptions() : [])].join(' ');
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
