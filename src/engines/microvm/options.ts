import type { Options } from '../../options/option.js';
import { integer, list, onOff, path, text } from '../../options/types.js';
import { isUsable } from '../../machine-network/resolvers.js';
import { GUARDED_GROUPS } from '../../network-policy/guarded-groups.js';

/** A monitor needs about 60 MiB with KVM. An emulated processor keeps the code that it has translated. */
export const OVERHEAD_MIB = 256;

/**
 * Off by default: QEMU counts freed blocks like written ones. A sandbox that removes a large file would wait as long as
 * it took to write it.
 */
export const DISK_WRITES = { default: 0, most: 1_000_000 };

const SUBNET = /^\d{1,3}(?:\.\d{1,3}){3}\/(?:[89]|1\d|2\d)$/;

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
  microvmDiskWritesMib: {
    type: integer('a number of MiB', 0, DISK_WRITES.most),
    description:
      'most MiB a second that a virtual machine writes to its disks, or frees there, from its next start on; 0: no limit',
    default: DISK_WRITES.default,
  },
  microvmAddresses: {
    type: text('<subnet>', 'an IPv4 subnet with room for sandboxes, such as 10.200.0.0/20', SUBNET),
    description: 'addresses of virtual machines, which no other network of this machine has',
    unset: 'a /20 of 10.192.0.0/10 without a route',
  },
  microvmResolvers: {
    type: list('<addresses>', 'IPv4 addresses separated by commas, none of them a loopback', (address) =>
      isUsable(address) ? address : undefined,
    ),
    description: 'resolvers that virtual machines ask, from their next start on',
    unset: 'those of the machine that have IPv4',
  },
  microvmAllow: {
    type: list('<groups>', `${GUARDED_GROUPS.join(', ')}, or both separated by a comma`, (word) =>
      GUARDED_GROUPS.find((known) => known === word),
    ),
    description: `surroundings of the machine that network policies of virtual machines may open: ${GUARDED_GROUPS.join(', ')}, or both`,
    default: [],
  },
  microvmEmulation: {
    type: onOff,
    description:
      'ONLY FOR TESTS: virtual machines without KVM, by emulation of their processors, which is slow and isolates less',
    default: false,
  },
} as const satisfies Options;
