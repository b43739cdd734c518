import { decode, type Answer, type DecodedPacket } from 'dns-packet';
import type { ServerAddress } from '../../src/gateway/dns/exchange.js';
import { NameServer } from '../../src/gateway/dns/server.js';
import type { Denial, DnsSettings, SandboxSettings } from '../../src/gateway/protocol.js';
import { SandboxTable, type GatedSandbox } from '../../src/gateway/sandbox.js';
import type { NetworkPolicy } from '../../src/network-policy/schema.js';

export const SANDBOX = '10.77.0.2';
const TYPES: Record<string, number> = {
  A: 1,
  CNAME: 5,
  PTR: 12,
  MX: 15,
  TXT: 16,
  AAAA: 28,
  SVCB: 64,
  HTTPS: 65,
  AXFR: 252,
  ANY: 255,
};

export function settingsOf(
  policy: NetworkPolicy,
  dns: Partial<DnsSettings> = {},
  others: Partial<SandboxSettings> = {},
): SandboxSettings {
  return {
    id: 's',
    orgId: 'o',
    address: SANDBOX,
    policy,
    surroundings: { hosts: ['10.77.0.1'], resolvers: [], neighbours: ['10.77.0.0/24'], openableGroups: [] },
    strict: true,
    dns: { nameservers: [], queryTimeoutMs: 5_000, rebindProtection: true, ...dns },
    tls: {
      enabled: false,
      ports: [443],
      bypass: [],
      verifyUpstream: true,
      scopedVerify: [],
      authorities: [],
      blockQuic: true,
      cacheCapacity: 1_000,
      validityHours: 24,
    },
    secrets: [],
    ...others,
  };
}

/** A query in the wire format, also of types that the library does not know. */
export function queryOf(
  name: string,
  type: string | number = 'A',
  {
    id = 7,
    edns,
    class: of = 1,
  }: { id?: number; edns?: { size: number; version?: number }; class?: number } = {},
): Buffer {
  const header = Buffer.alloc(12);
  header.writeUInt16BE(id, 0);
  header.writeUInt16BE(0x0100, 2);
  header.writeUInt16BE(1, 4);
  header.writeUInt16BE(edns ? 1 : 0, 10);
  const labels = name
    .split('.')
    .map((label) => Buffer.concat([Buffer.from([label.length]), Buffer.from(label, 'latin1')]));
  const tail = Buffer.alloc(5);
  tail.writeUInt16BE(typeof type === 'number' ? type : TYPES[type]!, 1);
  tail.writeUInt16BE(of, 3);
  const opt = Buffer.alloc(edns ? 11 : 0);
  if (edns) {
    opt.writeUInt16BE(41, 1);
    opt.writeUInt16BE(edns.size, 3);
    opt.writeUInt8(edns.version ?? 0, 6);
    // DO: the client wants signatures.
    opt.writeUInt16BE(0x8000, 7);
  }
  return Buffer.concat([header, ...labels, tail, opt]);
}

export interface Reply extends DecodedPacket {
  code: number;
  data: unknown[];
  bytes: Buffer;
}

interface Fakes {
  ask?: (query: Buffer) => Promise<Buffer | undefined>;
  mayAsk?: (sandbox: GatedSandbox, server: ServerAddress) => boolean;
}

/** A name server for sandboxes, with the calls that it makes. */
export function gatedNames(settings: SandboxSettings, { ask, mayAsk = () => true }: Fakes = {}) {
  const table = new SandboxTable();
  table.set(settings);
  const bound: { sandbox: string; name: string; addresses: string[]; ttlSecs: number }[] = [];
  const denials: Denial[] = [];
  const kernel = { takes: true };
  const server = new NameServer(
    table,
    {
      bind: (sandbox, name, addresses, ttlSecs) => {
        bound.push({ sandbox, name, addresses, ttlSecs });
        return Promise.resolve(kernel.takes);
      },
      ask: (query) => ask?.(query) ?? Promise.resolve(undefined),
      denied: (denial) => void denials.push(denial),
    },
    mayAsk,
  );
  const send = async (
    query: Buffer,
    from = SANDBOX,
    transport: 'udp' | 'tcp' = 'udp',
  ): Promise<Reply | undefined> => {
    const bytes = await server.handle(query, from, transport);
    if (!bytes) return undefined;
    const packet = decode(bytes);
    const data = (packet.answers ?? []).map((answer: Answer) => ('data' in answer ? answer.data : undefined));
    return { ...packet, code: bytes[3]! & 15, data, bytes };
  };
  return { table, server, bound, denials, kernel, send };
}
