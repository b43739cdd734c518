import { accessSync, constants, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { PACKAGE_ROOT } from '../../../lib/package-root.js';
import { compilePolicy } from '../../../machine-network/compile-policy.js';
import { explainNoNftables } from '../../../machine-network/nftables-probe.js';
import { behindLink } from '../../../machine-network/position.js';
import { runs, runWithInput } from '../../../machine-network/run-program.js';
import { PUBLIC_PROFILE } from '../../../network-policy/public-profile.js';
import { hostRulesOf, hostScript } from './host-rules.js';

/** Starts a program with the tap of a namespace. It is the build for the processor of this machine. */
export const TAP_PROGRAM = join(
  PACKAGE_ROOT,
  'guest',
  `tap-${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}`,
);

/** Returns the reason why virtual machines cannot have a filtered network. */
export async function explainNoNetwork(): Promise<string | undefined> {
  const noRules = await explainNoNftables();
  if (noRules !== undefined) return noRules;
  if (!(await runs('ip', '-Version')))
    return 'the program ip is missing (on Debian: apt-get install iproute2)';
  for (const path of [TAP_PROGRAM, '/dev/net/tun']) {
    try {
      accessSync(path, constants.R_OK);
    } catch (error) {
      return `${path} cannot be used (${(error as Error).message}): install the service again, or load the module tun with "modprobe tun"`;
    }
  }
  if (readFileSync('/proc/sys/net/ipv4/ip_forward', 'utf8').trim() !== '1')
    return 'this machine forwards no packets: set net.ipv4.ip_forward=1 in /etc/sysctl.d, and run "sysctl --system"';
  const none = { hosts: [], resolvers: [], neighbours: [], openableGroups: [], bandwidthMbits: 1 };
  const scripts = [
    compilePolicy(PUBLIC_PROFILE, none, { position: behindLink('vm0', '192.0.2.3') }),
    hostScript(hostRulesOf(''), '192.0.2.0/24', [], []),
  ];
  try {
    for (const script of scripts) await runWithInput('unshare', ['--net', 'nft', '-f', '-'], script);
    return undefined;
  } catch (error) {
    return `the kernel of this machine lacks a part of nftables (${(error as Error).message})`;
  }
}

/** Returns the reason why virtual machines with a network cannot publish ports. */
export async function explainNoPublishing(): Promise<string | undefined> {
  const one = { guest_port: 1, host_port: 1, host_bind: '127.0.0.2' };
  const ports = (['tcp', 'udp'] as const).map((protocol) => ({ ...one, protocol }));
  const script = hostScript(hostRulesOf(''), '192.0.2.0/24', [{ address: '192.0.2.3', ports }], []);
  return runWithInput('unshare', ['--net', 'nft', '-f', '-'], script).then(
    () => undefined,
    (error: Error) => `the kernel of this machine lacks a part of nftables (${error.message})`,
  );
}
