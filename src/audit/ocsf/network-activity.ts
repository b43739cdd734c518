/** The attributes of the class Network Activity. A payload may have any shape, as imported events do. */
export function networkActivityOf(payload: unknown) {
  const facts = (typeof payload === 'object' && payload !== null ? payload : {}) as Record<string, unknown>;
  const { sandbox_id, name, domain, address, port, protocol } = facts;
  const { connections, count, sent_bytes, received_bytes, first_at, last_at } = facts;
  const [sent, received] = [whole(sent_bytes), whole(received_bytes)];
  return {
    src_endpoint: { uid: text(sandbox_id) ?? 'Unknown', ...only('name', text(name)) },
    // A name that was refused has no address.
    dst_endpoint: {
      name: text(domain) ?? text(address) ?? 'Unknown',
      ...only('hostname', text(domain)),
      ...only('ip', text(address)),
      ...only('port', whole(port)),
    },
    connection_info: {
      direction_id: 2,
      direction: 'Outbound',
      ...only('protocol_name', transportOf(protocol)),
    },
    ...(sent === undefined || received === undefined
      ? {}
      : { traffic: { bytes: sent + received, bytes_out: sent, bytes_in: received } }),
    ...only('count', whole(connections) ?? whole(count)),
    ...only('start_time', time(first_at)),
    ...only('end_time', time(last_at)),
  };
}

/** The name of the protocol in the list of IANA. A query for a name may have used either. */
function transportOf(protocol: unknown): string | undefined {
  switch (protocol) {
    case 'udp':
      return 'udp';
    case 'tcp':
    case 'http':
    case 'tls':
      return 'tcp';
    default:
      return undefined;
  }
}

function text(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

function whole(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : undefined;
}

function time(value: unknown): number | undefined {
  const millis = Date.parse(text(value) ?? '');
  return Number.isNaN(millis) ? undefined : millis;
}

function only<Name extends string, Value>(
  name: Name,
  value: Value | undefined,
): Partial<Record<Name, Value>> {
  return value === undefined ? {} : ({ [name]: value } as Record<Name, Value>);
}
