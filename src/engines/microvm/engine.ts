import { defineEngine } from '../../engine/definition.js';
import { ExplainedError } from '../../lib/explained-error.js';
import { MICROVM_OPTIONS } from './options.js';

export const microvm = defineEngine({
  name: 'microvm',
  label: 'microVM engine',
  options: MICROVM_OPTIONS,
  address: ['microvmEmulation'],
  examined: ['microvmKernel'],
  leaving: ['microvmAddresses'],
  hasVolumeDirectories: true,
  /**
   * Each monitor gets a user, empty namespaces and control groups, and inherits the filter of system calls. A file
   * server of a volume gets namespaces of users, mounts and processes too.
   */
  unitRights: {
    lines: `CapabilityBoundingSet=CAP_CHOWN CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER CAP_FSETID CAP_KILL
CapabilityBoundingSet=CAP_NET_ADMIN CAP_SETFCAP CAP_SETGID CAP_SETPCAP CAP_SETUID CAP_SYS_ADMIN CAP_SYS_PTRACE
CapabilityBoundingSet=CAP_SYS_RESOURCE
RestrictAddressFamilies=AF_INET AF_INET6 AF_NETLINK AF_UNIX
RestrictNamespaces=net ipc uts mnt pid user
SystemCallFilter=@system-service @mount setns unshare
SystemCallFilter=landlock_add_rule landlock_create_ruleset landlock_restrict_self`,
    after: 'systemd-modules-load.service',
  },
  remedy: ': run "sandkeep doctor --runtime microvm", or use --runtime docker',

  async connect(options, surroundings) {
    const { connectMicrovm } = await import('./connect.js');
    return connectMicrovm(options, surroundings);
  },
  async examine(options, context) {
    const { examineMicrovm } = await import('./examine.js');
    return examineMicrovm(options, context);
  },
  async findRemains({ microvmAddresses }, installation) {
    const { findRemains } = await import('./remains.js');
    return findRemains(installation, microvmAddresses);
  },
  explain: (error) => (error instanceof ExplainedError ? error.message : String(error)),
});
