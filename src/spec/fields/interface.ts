import { isIPv4 } from 'node:net';
import { Type } from 'typebox';
import { Field, Nullable } from '../../http/schema.js';
import { field } from '../field.js';
import { InterfaceOverrides } from '../network-schema.js';
import { refuse } from '../refuse.js';

/** Each network of IPv4 carries so much. */
const SMALLEST_MTU = 576;
/** A frame of a virtual interface has no more. */
const LARGEST_MTU = 65_535;
const NOT_OFFERED = ['ipv4_pool', 'ipv6_address', 'ipv6_pool'] as const;

export const interfaceOverrides = field({
  schema: Field(
    Nullable(InterfaceOverrides),
    'The settings of the interface: `mac`, `mtu` and `ipv4_address`. Others are refused. Null: the runtime decides.',
  ),
  answer: Type.Optional(
    Field(Nullable(InterfaceOverrides), 'The settings of the interface. Null: the runtime decides.'),
  ),
  default: null,
  check(value, { field: path }) {
    const { mac, mtu, ipv4_address: address } = value ?? {};
    const refused = NOT_OFFERED.find((name) => value?.[name] != null);
    if (refused) refuse(`${path}.${refused}`, `${refused} is not offered: the runtime gives out addresses`);
    if (mac && (mac[0]! & 1) === 1)
      refuse(`${path}.mac`, 'the address of an interface has an even first octet; an odd one is for groups');
    if (mac?.every((octet) => octet === 0))
      refuse(`${path}.mac`, 'the address of an interface is not all zeros');
    if (mtu != null && (mtu < SMALLEST_MTU || mtu > LARGEST_MTU))
      refuse(`${path}.mtu`, `the largest packet has ${SMALLEST_MTU} to ${LARGEST_MTU} bytes`);
    if (address != null && !isIPv4(address))
      refuse(`${path}.ipv4_address`, 'ipv4_address is an IPv4 address');
  },
  requires: (value) => [
    value?.mac != null && { capability: 'network_mac', what: 'choose the MAC address' },
    value?.mtu != null && { capability: 'network_mtu', what: 'choose the size of packets' },
    value?.ipv4_address != null && {
      capability: 'network_address',
      what: 'choose the IPv4 address',
      remedy:
        'leave it out, or let the operator choose the addresses of sandboxes: --docker-network or --microvm-addresses',
    },
  ],
  show: (value) => value ?? undefined,
  run: (value) => {
    if (value?.mac == null && value?.mtu == null && value?.ipv4_address == null) return {};
    const { mac, mtu = null, ipv4_address: ipv4 = null } = value;
    const octets = mac?.map((octet) => octet.toString(16).padStart(2, '0')).join(':');
    return { networkInterface: { mac: octets ?? null, mtu, ipv4 } };
  },
});
