import type { FlowCounter } from '../flows.js';
import type { GatedSandbox } from '../sandbox.js';

/** The destination of a connection that the gateway forwards request by request. */
export interface Destination {
  sandbox: GatedSandbox;
  /** Canonical. The policy allows it at this address and port. */
  name: string;
  /** The address that the sandbox chose. The gateway connects to exactly this one. */
  address: string;
  port: number;
  /** TLS. False: clear HTTP. */
  encrypted: boolean;
  /** The protocols that the client offers in its ClientHello (ALPN), in its order. */
  protocols?: readonly string[];
  flow: FlowCounter;
}
