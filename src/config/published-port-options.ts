import { canonicalAddress } from '../spec/published-port.js';
import { portRange } from '../lib/port-ranges.js';
import type { Options } from '../options/option.js';
import { list } from '../options/types.js';

export const PUBLISHED_PORT_OPTIONS = {
  publishedPorts: {
    type: list('<ranges>', 'ports and ranges such as 20000-29999, separated by commas', (text) =>
      portRange(text) ? text : undefined,
    ),
    description: 'ports of the machine that sandboxes may publish theirs on; empty: none',
    // Below the ports that Linux gives to outgoing connections, which begin at 32768.
    default: ['20000-29999'],
    setting: true,
  },
  publishedAddresses: {
    type: list('<addresses>', 'IPv4 and IPv6 addresses separated by commas', (text) =>
      canonicalAddress(text) === text ? text : undefined,
    ),
    description:
      'addresses of the machine that sandboxes may publish ports on, besides loopback other than 127.0.0.1 and ::1, whose ports get cookies of localhost; 0.0.0.0: each of IPv4',
    default: [],
    setting: true,
  },
} as const satisfies Options;
