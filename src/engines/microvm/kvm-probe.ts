import { readFileSync } from 'node:fs';
import { runWithInput } from '../../machine-network/run-program.js';
import { probeArguments } from './monitor.js';

const CPU_INFO = '/proc/cpuinfo';

/** The ways out of a machine on which virtual machines do not start. */
export const WITHOUT_KVM =
  'use a machine whose processor has virtualization (inside of a virtual machine: nested virtualization), or --runtime docker; for tests alone, --microvm-emulation';

const QUIT = '{"execute": "qmp_capabilities"}\n{"execute": "quit"}\n';

interface KvmProbe {
  monitor: string;
  isEmulated?: boolean;
  cpuInfo?: string;
}

/**
 * Returns the reason why virtual machines do not start, though monitors can open /dev/kvm. The monitor makes a machine
 * like those of sandboxes, which runs no instruction.
 */
export async function explainNoKvm({
  monitor,
  isEmulated = false,
  cpuInfo = readFileSync(CPU_INFO, 'utf8'),
}: KvmProbe): Promise<string | undefined> {
  // A module may offer KVM by page tables alone. It interprets the kernels of distributions, or refuses them.
  if (!isEmulated && !/^flags\s*:.*\b(vmx|svm)\b/m.test(cpuInfo))
    return 'the processor has no virtualization (no vmx or svm in /proc/cpuinfo), and KVM without it starts no kernel of a distribution, or very slowly';
  const [program, ...args] = probeArguments(monitor, { isEmulated });
  try {
    await runWithInput(program!, args, QUIT);
    return undefined;
  } catch (error) {
    const { message } = error as Error;
    // A busy machine has not answered in time, which says nothing about KVM.
    if (message.endsWith('SIGKILL')) return undefined;
    return `QEMU makes no virtual machine with KVM (${message.slice(0, LONGEST)})`;
  }
}

const LONGEST = 300;
