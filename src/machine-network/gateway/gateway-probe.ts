import { accessSync, constants } from 'node:fs';
import { PUBLIC_PROFILE } from '../../network-policy/public-profile.js';
import { compilePolicy } from '../compile-policy.js';
import { runs, runWithInput } from '../run-program.js';
import { GatedRules } from './gated-rules.js';
import { SOURCE_FILE } from './gateway-program.js';
import { gatewayRules } from './gateway-rules.js';
import { LAUNCH } from './launch.js';

/** Returns the reason why this machine has no gateway: rules by domain, secrets and interception need it. */
export async function explainNoGateway(): Promise<string | undefined> {
  if (!(await runs('ip', '-Version')))
    return 'the program ip is missing (on Debian: apt-get install iproute2)';
  try {
    accessSync(LAUNCH, constants.X_OK);
    accessSync(SOURCE_FILE, constants.R_OK);
  } catch (error) {
    return `the installation is incomplete (${(error as Error).message}): install it again`;
  }
  const none = { hosts: [], resolvers: [], neighbours: [], openableGroups: [] };
  const gated = new GatedRules(PROBED_POLICY, PROBED, none);
  const scripts = [
    gatewayRules(none),
    compilePolicy(PROBED_POLICY, { ...none, bandwidthMbits: 0 }, { limits: { tcp: 1, udp: 1 }, gated }),
  ];
  try {
    for (const script of scripts) await runWithInput('unshare', ['--net', 'nft', '-f', '-'], script);
    return undefined;
  } catch (error) {
    return `the kernel of this machine lacks a part of nftables (${(error as Error).message})`;
  }
}

const PROBED_POLICY = {
  rules: [
    { direction: 'egress', destination: { domain_suffix: 'example.com' }, action: 'allow' },
    ...PUBLIC_PROFILE.rules!,
  ],
} satisfies typeof PUBLIC_PROFILE;

const PROBED = {
  strict: true,
  dns: { nameservers: [], queryTimeoutMs: 1_000, rebindProtection: true },
  tls: {
    enabled: true,
    ports: [443],
    bypass: [],
    verifyUpstream: true,
    scopedVerify: [],
    authorities: [],
    blockQuic: true,
    cacheCapacity: 1,
    validityHours: 1,
  },
  secrets: [],
};
