/**
 * Sources: IANA's registries of special-purpose addresses, and the documentation of cloud providers for their metadata
 * services. `metadata` takes precedence over the range that contains it.
 */
export const GROUPS = {
  loopback: { v4: ['127.0.0.0/8'], v6: ['::1/128'] },
  // Including the shared space of carriers, which overlay networks use.
  private: { v4: ['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', '100.64.0.0/10'], v6: ['fc00::/7'] },
  link_local: { v4: ['169.254.0.0/16'], v6: ['fe80::/10'] },
  metadata: {
    v4: [
      '169.254.169.254', // most providers
      '169.254.170.2', // AWS: containers
      '169.254.170.23', // AWS: pods
      '169.254.42.42', // Scaleway
      '100.100.100.200', // Alibaba Cloud
      '168.63.129.16', // Azure: looks public
      '192.0.0.192', // Oracle Cloud
    ],
    v6: ['fd00:ec2::254', 'fd00:ec2::23', 'fd20:ce::254', 'fd00:42::42'],
  },
  multicast: { v4: ['224.0.0.0/4'], v6: ['ff00::/8'] },
} as const satisfies Record<string, { v4: readonly string[]; v6: readonly string[] }>;

/** Ranges that are not public and belong to no group. */
const UNGROUPED = {
  v4: [
    '0.0.0.0/8', // this network
    '192.0.0.0/24', // protocol assignments
    '192.0.2.0/24', // documentation
    '192.88.99.0/24', // the relays of 6to4
    '198.18.0.0/15', // benchmarks
    '198.51.100.0/24', // documentation
    '203.0.113.0/24', // documentation
    '240.0.0.0/4', // reserved, and the broadcast address
  ],
  v6: [
    // Only 2000::/3 is allocated. Outside are the unspecified address, IPv4-mapped addresses, NAT64 (64:ff9b::/96),
    // discard (100::/64) and segment routing (5f00::/16).
    '::/3',
    '4000::/2',
    '8000::/1',
    '2001::/23', // protocol assignments, among them Teredo, which carries any IPv4 address
    '2001:db8::/32', // documentation
    '2002::/16', // 6to4: carries any IPv4 address
    '3fff::/20', // documentation
  ],
};

/** All addresses that are not public. */
export const SPECIAL = {
  v4: [...UNGROUPED.v4, ...Object.values(GROUPS).flatMap(({ v4 }) => [...v4])],
  v6: [...UNGROUPED.v6, ...Object.values(GROUPS).flatMap(({ v6 }) => [...v6])],
};
