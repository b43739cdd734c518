/** A network namespace of this machine. Its owner may end at any time. */
export interface NetworkNamespace {
  /** Calls `act` with an open descriptor. Throws where the owner has ended, and StartRefusedError for a wrong one. */
  enter: <Result>(act: (descriptor: number) => Promise<Result>) => Promise<Result>;
}

/** A namespace that has an address on a network of the machine. */
export interface LinkedNamespace extends NetworkNamespace {
  /** The addresses of the machine on that network. */
  gateways: string[];
  /** Its own addresses with the length of their networks, or those behind it. */
  links: string[];
  /** The sandbox is behind it. Default: the programs of the sandbox are in it. */
  forwards?: boolean;
}

/** The namespace of the gateway. */
export interface GatewayNamespace extends LinkedNamespace {
  /** Each namespace has another one. */
  key: string;
  isAlive: () => boolean;
}
