/** The messages between a test and the servers of its internet, as lines of JSON. */

export interface NameRecord {
  addresses?: string[];
  /** In seconds. Default: 60. */
  ttl?: number;
  /** Another name, whose addresses follow. */
  alias?: string;
  /** `missing`: NXDOMAIN, as for every name without a record. */
  fails?: 'silence' | 'server-failure' | 'missing';
  delayMs?: number;
}

/** By name in lower case. `*.example.test` is for every name below that has no record of its own. */
export type Zone = Record<string, NameRecord>;

export interface ServedCertificate {
  names: string[];
  cert: string;
  key: string;
}

export interface ServersConfig {
  /** The name server has it. */
  resolver: string;
  zone: Zone;
  certificates: ServedCertificate[];
  /** Directories of files, by host. */
  files: Record<string, string>;
  /** The field `authorization` that a host demands. */
  authorizations: Record<string, string>;
  udpAddresses: string[];
}

/** A request as a server saw it. */
export interface SeenRequest {
  host: string;
  /** The address and port of the connection. */
  to: string;
  version: string;
  /** The server name of the TLS handshake. Absent: no TLS. */
  serverName?: string;
  method: string;
  url: string;
  headers: [name: string, value: string][];
  /** The first 64 KiB. */
  body: string;
  bytes: number;
  sha256: string;
}

export type Command =
  | { do: 'zone'; zone: Zone }
  | { do: 'requests' }
  | { do: 'questions' }
  /** As `tcp 45.13.1.2:443`, one for each connection, or each datagram of UDP. */
  | { do: 'contacts' };
