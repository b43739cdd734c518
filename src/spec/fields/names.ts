import { isIP } from 'node:net';
import { Type } from 'typebox';
import { Field, Nullable } from '../../http/schema.js';
import { field } from '../field.js';
import { DnsConfig } from '../network-schema.js';
import { refuse } from '../refuse.js';
import { MOST } from '../size-limits.js';

const LONGEST_QUERY_MS = 60_000;

export const dns = field({
  schema: Field(Nullable(DnsConfig), 'The name resolution. Null: that of the host.'),
  answer: Type.Optional(Field(Nullable(DnsConfig), 'The name resolution. Null: that of the host.')),
  default: null,
  check(value, { field: path }) {
    const { nameservers = [], query_timeout_ms: timeout } = value ?? {};
    if (nameservers.length > MOST.nameservers)
      refuse(`${path}.nameservers`, `a sandbox has at most ${MOST.nameservers} name servers`);
    for (const [index, server] of nameservers.entries()) {
      if (!isNameserver(server))
        refuse(
          `${path}.nameservers[${index}]`,
          'a name server is an IP address with an optional port, such as 9.9.9.9, 9.9.9.9:53 or [2620:fe::fe]:53',
        );
    }
    if (timeout !== undefined && (timeout < 1 || timeout > LONGEST_QUERY_MS))
      refuse(`${path}.query_timeout_ms`, `a query may take 1 to ${LONGEST_QUERY_MS} ms`);
  },
  requires: (value) => [
    Object.keys(value ?? {}).length > 0 && { capability: 'network_dns', what: 'resolve names by itself' },
  ],
  show: (value) => value ?? undefined,
});

function isNameserver(text: string): boolean {
  if (isIP(text) !== 0) return true;
  const [, v6, v4, port] = /^(?:\[([0-9A-Fa-f:.]+)\]|([\d.]+))(?::(\d{1,5}))?$/.exec(text) ?? [];
  const isAddress = v6 === undefined ? isIP(v4 ?? '') === 4 : isIP(v6) === 6;
  return isAddress && (port === undefined || (Number(port) > 0 && Number(port) < 65_536));
}
