/**
 * The messages between the service and its gateway, as lines of JSON. The service writes to the standard input of the
 * gateway and reads its standard output. The gateway ends when its input ends, so it never outlives the service.
 *
 * The gateway parses what sandboxes and strangers send, so it has no rights: it is a user of its own in a network
 * namespace of its own. The service does for it what needs rights: it puts addresses into the sets of the kernel
 * (`bind`), and asks name servers that only the machine reaches (`ask`).
 */
import type { Surroundings } from '../network-policy/evaluate.js';
import type { NetworkPolicy } from '../network-policy/schema.js';

export interface HostPattern {
  type: 'exact' | 'wildcard' | 'any';
  /** Absent for `any`. A wildcard is `*.example.com`, and matches the apex too. */
  value?: string;
}

type ViolationAction = 'block' | 'block_and_log' | 'block_and_terminate';

export interface GatedSecret {
  /** The variable, by which events and records name the secret. */
  name: string;
  placeholder: string;
  value: string;
  allowedHosts: HostPattern[];
  /** These get the placeholder unchanged. */
  passthroughHosts: HostPattern[];
  places: {
    headers: boolean;
    /** The only headers. Empty: every header. Lower case. */
    headerFields: string[];
    basicAuth: boolean;
    query: boolean;
    body: boolean;
  };
  onViolation: ViolationAction;
  /** Only to a server whose certificate was verified for the name. */
  requireTlsIdentity: boolean;
}

export interface DnsSettings {
  /** `address`, `address:port` or `[address]:port`. Empty: those of the machine, which the service asks. */
  nameservers: string[];
  queryTimeoutMs: number;
  rebindProtection: boolean;
}

export interface TlsSettings {
  /** Every name is decrypted but those of `bypass`. False: only names of secrets. */
  enabled: boolean;
  ports: number[];
  /** Exact names, or `*.suffix`. */
  bypass: string[];
  verifyUpstream: boolean;
  scopedVerify: { pattern: string; verify: boolean }[];
  /** Texts of PEM. `pattern` undefined: for every name. */
  authorities: { pattern?: string; pem: string }[];
  blockQuic: boolean;
  cacheCapacity: number;
  validityHours: number;
}

/** A sandbox whose connections need names, secrets or interception. A second one of the same id replaces the first. */
export interface SandboxSettings {
  id: string;
  orgId: string;
  /** Its IPv4 address, from which its packets come. */
  address: string;
  policy: NetworkPolicy;
  surroundings: Surroundings;
  /** The first bytes of a connection must name its destination. */
  strict: boolean;
  dns: DnsSettings;
  tls: TlsSettings;
  secrets: GatedSecret[];
}

/** PEM texts. */
export interface Authority {
  certificate: string;
  key: string;
}

export type ToGateway =
  | { type: 'authority'; authority: Authority }
  | { type: 'sandbox'; sandbox: SandboxSettings }
  | { type: 'forget'; id: string }
  /** Every sandbox is sent that the service can describe now. Until then queries and connections wait in the kernel. */
  | { type: 'serve' }
  /** Answers `bind`: the kernel has the addresses now, or they do not fit. */
  | { type: 'bound'; request: number; ok: boolean }
  /** Answers `ask`. Base64. Absent: no name server answered in time. */
  | { type: 'asked'; request: number; answer?: string };

/** A name or an address that a sandbox was refused. */
export interface Denial {
  sandbox: string;
  /** In milliseconds since 1970. */
  at: number;
  /** Equal refusals since the previous message. Default: 1. */
  count?: number;
  kind: 'name' | 'connection' | 'request' | 'secret';
  protocol: 'dns' | Carrier | 'http' | 'tls';
  name?: string;
  address?: string;
  port?: number;
  rule?: Verdict['rule'];
  /** For people. */
  reason: string;
  /** For `secret`. */
  secret?: string;
  terminates?: boolean;
}

/** The traffic of a sandbox with one destination since the previous report. */
export interface Flow {
  sandbox: string;
  name?: string;
  /** `*` with port 0: the destinations beyond the most that are told apart. */
  address: string;
  port: number;
  protocol: Carrier;
  rule: Verdict['rule'];
  /** New ones. */
  connections: number;
  sentBytes: number;
  receivedBytes: number;
  firstAt: number;
  lastAt: number;
  /** The names of the secrets that were put in. */
  secrets: string[];
}

export type FromGateway =
  | { type: 'ready' }
  /** `name` has these addresses for `ttlSecs`. The resolver answers after `bound`. */
  | { type: 'bind'; request: number; sandbox: string; name: string; addresses: string[]; ttlSecs: number }
  /** A query in the wire format, for the name servers of the machine. Base64. */
  | { type: 'ask'; request: number; query: string; timeoutMs: number }
  | { type: 'denied'; denial: Denial }
  | { type: 'flows'; flows: Flow[] };

type Carrier = 'tcp' | 'udp';
type Verdict = { rule: number | 'default' | 'guard' };

/** The addresses of the gateway in its own namespace, as sandboxes see them. Link-local: no route leads there. */
export const GATEWAY_ADDRESS = '169.254.7.53';
/** Listeners that `launch` opens, in the order of their descriptors from 3 on. */
export const LISTENERS = ['dns-udp', 'dns-tcp', 'foreign-dns-udp', 'foreign-dns-tcp', 'connections'] as const;
export const PORTS = { dns: 53, foreignDns: 5_300, connections: 15_001 } as const;
