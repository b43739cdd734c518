import type { Options } from '../../options/option.js';
import { integer, onOff, path } from '../../options/types.js';

/** A monitor needs about 60 MiB with KVM. An emulated processor keeps the code that it has translated. */
export const OVERHEAD_MIB = 256;

export const MICROVM_OPTIONS = {
  microvmKernel: {
    type: path('<file>'),
    description: 'kernel of virtual machines: vmlinuz or vmlinux, with its modules in /lib/modules',
    unset: 'the newest kernel of this machine that has what they need',
  },
  microvmOverheadMib: {
    type: integer('a number of MiB', 32, 65_536),
    description: 'memory of a monitor beside that of its virtual machine; one that uses more is killed',
    default: OVERHEAD_MIB,
  },
  microvmEmulation: {
    type: onOff,
    description:
      'ONLY FOR TESTS: virtual machines without KVM, by emulation of their processors, which is slow and isolates less',
    default: false,
  },
} as const satisfies Options;
