import { connect, type Socket } from 'node:net';
import type { Release } from '../../fairness/slots.js';
import type { Denials } from '../denials.js';
import type { Destination, FlowBook } from '../flows.js';
import type { Denial } from '../protocol.js';
import { classify, type FirstBytes } from './first-bytes.js';
import type { RequestForwarder } from './hand-over.js';
import { isNamed, judge, mustShowName, type Judgement, type Target } from './judge.js';
import type { ConnectionLimits } from './limits.js';
import { refuseRequest } from './refuse.js';
import { asksForSecondHello, readSecondHello } from './second-hello.js';
import { joinEnds, relay, reset, type Splice } from './splice.js';

export const WAITS = {
  /** A client that sends its first bytes more slowly is refused. */
  firstBytesMs: 5_000,
  /** A client that sends nothing for so long waits for its server, as with SMTP. */
  serverFirstMs: 1_000,
};
/** The bytes are read again at each fragment. */
const MOST_FRAGMENTS = 256;
const CONNECT_MS = 30_000;
const KEEP_ALIVE_MS = 60_000;

export interface ConnectionParts {
  flows: FlowBook;
  denials: Pick<Denials, 'add'>;
  limits: ConnectionLimits;
  /** Undefined: no connection is decrypted, and HTTP in clear must not need it. */
  forwarder?: RequestForwarder | undefined;
  /** Default: a connection to exactly that address and port. */
  dial?: (address: string, port: number) => Socket;
  waits?: typeof WAITS;
}

function dialDirectly(address: string, port: number): Socket {
  return connect({
    host: address,
    port,
    allowHalfOpen: true,
    noDelay: true,
    keepAlive: true,
    keepAliveInitialDelay: KEEP_ALIVE_MS,
  });
}

/** A connection of a sandbox, from its first bytes to the splice. */
export class Connection {
  private held: Buffer = Buffer.alloc(0);
  private fragments = 0;
  private deadline: NodeJS.Timeout | undefined;
  private readonly waits: typeof WAITS;
  /** Set when the server may speak before the client did. */
  private splice: Splice | undefined;

  constructor(
    private readonly client: Socket,
    private readonly target: Target,
    private readonly parts: ConnectionParts,
    /** Called once the first bytes are judged. */
    private readonly decided: Release,
  ) {
    this.waits = parts.waits ?? WAITS;
    client.setKeepAlive(true, KEEP_ALIVE_MS).setNoDelay(true);
    client.on('error', () => {}).on('close', () => clearTimeout(this.deadline));
  }

  /** Reads the first bytes. */
  begin(): void {
    const { firstBytesMs, serverFirstMs } = this.waits;
    this.deadline = mustShowName(this.target)
      ? setTimeout(this.readLast, firstBytesMs)
      : setTimeout(() => this.letServerSpeak(), serverFirstMs);
    this.client.on('data', this.read).on('end', this.readLast);
  }

  private readonly read = (chunk: Buffer): void => {
    if (this.fragments === 0 && !mustShowName(this.target)) {
      clearTimeout(this.deadline);
      this.deadline = setTimeout(this.readLast, this.waits.firstBytesMs);
    }
    this.fragments += 1;
    this.held = this.held.length === 0 ? chunk : Buffer.concat([this.held, chunk]);
    this.settle(classify(this.held, this.fragments > MOST_FRAGMENTS));
  };

  private readonly readLast = (): void => this.settle(classify(this.held, true));

  private settle(first: FirstBytes | 'more'): void {
    if (first === 'more') return;
    clearTimeout(this.deadline);
    this.client.pause();
    this.client.off('data', this.read).off('end', this.readLast);
    this.decided();
    const judgement = judge(this.target, first);
    if (judgement.action === 'deny') this.refuse(first, judgement);
    else if (this.mustForward(first, judgement)) this.forward(first, judgement);
    else this.pass(first, judgement);
  }

  /** The client may send its first bytes later. They are judged all the same. */
  private letServerSpeak(): void {
    const judgement = judge(this.target, { kind: 'other' });
    if (judgement.action === 'deny') return this.settle({ kind: 'other' });
    this.decided();
    this.splice = this.dial(judgement);
    relay(this.splice, 'received');
  }

  private mustForward(first: FirstBytes, { name }: Judgement): boolean {
    const { sandbox, address, port } = this.target;
    if (first.kind === 'http')
      return !first.isTunnel && (isNamed(sandbox) || sandbox.settings.secrets.length > 0);
    if (first.kind === 'http2') return isNamed(sandbox);
    return first.kind === 'tls' && (this.parts.forwarder?.isNeeded(sandbox, name ?? address, port) ?? false);
  }

  private forward(first: FirstBytes, judgement: Judgement): void {
    const { parts, client, target } = this;
    // The forwarder connects by itself, and clients of TLS and HTTP speak first.
    if (!parts.forwarder || this.splice)
      return this.refuse(first, { ...judgement, reason: 'its first bytes came too late to be judged' });
    const { sandbox, address, port } = target;
    const flow = parts.flows.open(sandbox.settings.id, this.destination(judgement));
    client.on('close', () => flow.end());
    client.unshift(this.held);
    parts.forwarder.handle(client, {
      sandbox,
      name: judgement.name ?? address,
      address,
      port,
      encrypted: first.kind === 'tls',
      ...(first.kind === 'tls' && { protocols: first.protocols }),
      flow,
    });
  }

  private pass(first: FirstBytes, judgement: Judgement): void {
    const isNew = !this.splice;
    const splice = this.splice ?? this.dial(judgement);
    if (isNew) relay(splice, 'received');
    if (first.kind === 'tls' && isNamed(this.target.sandbox)) return this.passHello(splice, first);
    this.send(splice, this.held);
    relay(splice, 'sent');
  }

  /** The rest of the client's bytes pass once no second hello can have another name. */
  private passHello(splice: Splice, { name, end }: FirstBytes & { kind: 'tls' }): void {
    const { client, server } = splice;
    this.send(splice, this.held.subarray(0, end));
    let pending: Buffer = this.held.subarray(end);
    let answer: Buffer = Buffer.alloc(0);
    const passRest = () => {
      server.off('data', look).off('end', passRest);
      client.off('data', check).off('end', refuse);
      this.send(splice, pending);
      relay(splice, 'sent');
    };
    const refuse = () => {
      const reason = 'a second TLS ClientHello has another name, or is malformed';
      this.tell({ protocol: 'tls', name, reason, rule: 'default' });
      reset(client, server);
    };
    const check = (chunk: Buffer) => {
      pending = Buffer.concat([pending, chunk]);
      const second = readSecondHello(pending, name);
      if (second === 'same') passRest();
      else if (second === 'other') refuse();
    };
    const look = (chunk: Buffer) => {
      answer = Buffer.concat([answer, chunk]);
      const asks = asksForSecondHello(answer);
      if (asks === 'more') return;
      server.off('data', look);
      if (!asks) return passRest();
      client.on('data', check).on('end', refuse).resume();
      check(Buffer.alloc(0));
    };
    server.on('data', look).on('end', passRest);
  }

  private send({ server, flow }: Splice, bytes: Buffer): void {
    if (bytes.length === 0) return;
    flow.sent(bytes.length);
    server.write(bytes);
  }

  private dial(judgement: Judgement): Splice {
    const { client, parts, target } = this;
    const { address, port, sandbox } = target;
    const server = (parts.dial ?? dialDirectly)(address, port);
    server.setTimeout(CONNECT_MS, () => reset(server));
    server.once('connect', () => server.setTimeout(0));
    const flow = parts.flows.open(sandbox.settings.id, this.destination(judgement));
    const splice = { client, server, flow, unsent: parts.limits.unsent, owner: sandbox.settings.orgId };
    joinEnds(splice);
    return splice;
  }

  private destination({ name, rule }: Judgement): Destination {
    const { address, port, sandbox } = this.target;
    const bound = name === undefined ? sandbox.bindings.namesOf(address) : [];
    // An address of several names tells nothing about a connection that claims none.
    const known = name ?? (bound.length === 1 ? bound[0] : undefined);
    return { ...(known === undefined ? {} : { name: known }), address, port, protocol: 'tcp', rule };
  }

  private refuse(first: FirstBytes, { name, rule, reason }: Judgement): void {
    const protocol = first.kind === 'broken' ? first.protocol : first.kind;
    const isHttp = protocol === 'http';
    this.tell({
      protocol: protocol === 'tls' || isHttp ? protocol : 'tcp',
      name,
      reason,
      rule,
    });
    if (isHttp && !this.splice) refuseRequest(this.client, { name, reason });
    else reset(this.client);
  }

  private tell(refusal: Pick<Denial, 'protocol' | 'reason'> & Pick<Judgement, 'name' | 'rule'>): void {
    const { address, port, sandbox } = this.target;
    const { name, ...others } = refusal;
    this.parts.denials.add({
      sandbox: sandbox.settings.id,
      at: Date.now(),
      kind: refusal.protocol === 'http' ? 'request' : 'connection',
      ...(name === undefined ? {} : { name }),
      ...others,
      address,
      port,
    });
  }
}
