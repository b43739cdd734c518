import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Denials } from '../denials.js';
import type { Denial, GatedSecret } from '../protocol.js';
import type { GatedSandbox } from '../sandbox.js';
import type { Destination } from './destination.js';
import type { Refusal } from './refusal.js';
import type { SharedWork } from './shared-work.js';
import type { Upstream } from './upstream.js';

/** Told together with the flows, which the gateway reports each 5 s. */
const COUNT_MS = 2_000;

/** A connection of a sandbox whose requests are forwarded one by one. */
export class Connection {
  private sent = 0;
  private received = 0;
  private readonly timer: NodeJS.Timeout;
  /** An open connection lives on when the lifetime of an answer ends. */
  private readonly resolved: ReadonlySet<string>;

  constructor(
    /** As the kernel gave it. */
    private readonly raw: Socket,
    readonly to: Destination,
    private readonly denials: Pick<Denials, 'add'>,
    readonly work: SharedWork,
    private readonly current: (id: string) => GatedSandbox | undefined,
  ) {
    this.resolved = new Set(to.sandbox.bindings.namesOf(to.address));
    this.timer = setInterval(() => this.count(), COUNT_MS);
    raw.once('close', () => {
      clearInterval(this.timer);
      this.count();
      to.flow.end();
    });
  }

  /** The latest settings: a secret may have changed since the connection began. */
  get secrets(): readonly GatedSecret[] {
    const { sandbox } = this.to;
    return (this.current(sandbox.settings.id) ?? sandbox).settings.secrets;
  }

  /** Whether the sandbox got the address of this connection as an answer for the name. */
  isResolved(name: string): boolean {
    const { sandbox, address } = this.to;
    return this.resolved.has(name) || sandbox.bindings.namesOf(address).includes(name);
  }

  get orgId(): string {
    return this.to.sandbox.settings.orgId;
  }

  /** Ends it as a refused connection: the client sees a reset. */
  reset(): void {
    this.raw.resetAndDestroy();
  }

  /** Tells the refusal, and ends the connection. */
  refuse(reason: string): void {
    this.tell('connection', this.to.encrypted ? 'tls' : 'tcp', this.to.name, reason);
    this.reset();
  }

  /** Tells that a request was refused. */
  deny({ domain, message }: Refusal): void {
    this.tell('request', 'http', domain || this.to.name, message);
  }

  /** Tells that a placeholder went where it must not, as its secret wants it. */
  denySecret({ name: secret, onViolation }: GatedSecret, name: string, reason: string): void {
    if (onViolation === 'block') return;
    const { sandbox, address, port } = this.to;
    this.denials.add({
      sandbox: sandbox.settings.id,
      at: Date.now(),
      kind: 'secret',
      protocol: 'http',
      name,
      address,
      port,
      reason,
      secret,
      ...(onViolation === 'block_and_terminate' && { terminates: true }),
    });
  }

  private tell(kind: Denial['kind'], protocol: Denial['protocol'], name: string, reason: string): void {
    const { sandbox, address, port } = this.to;
    const at = Date.now();
    this.denials.add({ sandbox: sandbox.settings.id, at, kind, protocol, name, address, port, reason });
  }

  /** Ciphertext counts too, as for connections that are not decrypted. */
  private count(): void {
    const { bytesRead, bytesWritten } = this.raw;
    if (bytesRead > this.sent) this.to.flow.sent(bytesRead - this.sent);
    if (bytesWritten > this.received) this.to.flow.received(bytesWritten - this.received);
    this.sent = Math.max(this.sent, bytesRead);
    this.received = Math.max(this.received, bytesWritten);
  }
}

/** Both sides of a connection, in clear. */
export interface Sides {
  connection: Connection;
  client: Duplex;
  upstream: Upstream;
}

/** Passes bytes both ways until both sides have ended. */
export function joinSides(client: Duplex, server: Duplex): void {
  for (const [from, to] of [
    [client, server],
    [server, client],
  ] as const) {
    from.pipe(to);
    from.on('error', () => to.destroy());
    from.on('close', () => {
      // A side that ended in order has ended the other by the pipe. Its last bytes may still be on their way.
      if (!from.readableEnded) to.destroy();
    });
  }
}
