import { PUBLIC_PROFILE } from '../network-policy/public-profile.js';
import { compilePolicy } from './compile-policy.js';
import { runs, runWithInput } from './run-program.js';

export async function explainNoNftables(): Promise<string | undefined> {
  if (process.platform !== 'linux') return 'network filtering requires Linux';
  if (process.getuid?.() !== 0) return 'network filtering requires the service to run as root';
  for (const [program, debianPackage] of [
    ['nft', 'nftables'],
    ['nsenter', 'util-linux'],
  ] as const) {
    if (!(await runs(program)))
      return `the program ${program} is missing (on Debian: apt-get install ${debianPackage})`;
  }
  try {
    const none = { hosts: [], resolvers: [], neighbours: [], openableGroups: [] };
    await runWithInput(
      'unshare',
      ['--net', 'nft', '-f', '-'],
      compilePolicy(PUBLIC_PROFILE, { ...none, bandwidthMbits: 1 }),
    );
    return undefined;
  } catch (error) {
    return `nftables does not work on this machine (${(error as Error).message})`;
  }
}
