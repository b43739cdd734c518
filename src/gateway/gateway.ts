import { once } from 'node:events';
import type { Readable, Writable } from 'node:stream';
import { Acceptor, BACKLOG } from './connections/acceptor.js';
import { ConnectionLimits } from './connections/limits.js';
import { Denials } from './denials.js';
import { ForeignNameServer } from './dns/foreign.js';
import { NameServer } from './dns/server.js';
import { serveTcp, serveUdp, type AnswerQuery } from './dns-listeners.js';
import { FlowBook } from './flows.js';
import { Interceptor } from './intercept/intercept.js';
import type { Denial, LISTENERS } from './protocol.js';
import { SandboxTable } from './sandbox.js';
import { ServiceLink, type Settings } from './service-link.js';

const FLOWS_MS = 5_000;

export type Descriptors = Record<(typeof LISTENERS)[number], number>;

/** The parts of the gateway, and their wiring. */
export class Gateway {
  readonly table = new SandboxTable();
  readonly flows = new FlowBook();
  readonly link: ServiceLink;
  readonly denials: Denials;
  private readonly names: NameServer;
  private readonly foreignNames: ForeignNameServer;
  private readonly acceptor: Acceptor;
  private readonly interceptor: Interceptor;
  private readonly timers: NodeJS.Timeout[];
  private noteServing: () => void = () => undefined;
  private readonly mayServe = new Promise<void>((resolve) => (this.noteServing = resolve));

  /** `end`: the service is gone, or has broken the protocol. */
  constructor(input: Readable, output: Writable, end: (reason?: string) => void) {
    this.link = new ServiceLink(input, output, {
      settings: (message) => this.apply(message),
      end: (reason) => {
        this.close();
        end(reason);
      },
    });
    this.denials = new Denials((denial) => void this.link.denied(denial));
    const denied = (denial: Denial) => this.denials.add(denial);
    this.names = new NameServer(this.table, {
      bind: (...binding) => this.link.bind(...binding),
      ask: (query, timeoutMs) => this.link.ask(query, timeoutMs),
      denied,
    });
    this.foreignNames = new ForeignNameServer(this.table, { denied });
    this.interceptor = new Interceptor({ denials: this.denials, table: this.table });
    this.acceptor = new Acceptor({
      table: this.table,
      flows: this.flows,
      denials: this.denials,
      limits: new ConnectionLimits(),
      forwarder: this.interceptor,
    });
    this.timers = [
      setInterval(() => this.link.flows(this.flows.report()), FLOWS_MS),
      setInterval(() => this.denials.flush(), Denials.flushMs),
    ];
  }

  /** Serves on listeners that another program has opened, as soon as the service has described its sandboxes. */
  async serve(descriptors: Descriptors): Promise<void> {
    this.link.ready();
    await this.mayServe;
    const answer: AnswerQuery = (...query) => this.names.handle(...query);
    const answerForeign: AnswerQuery = (...query) => this.foreignNames.handle(...query);
    const dns = [serveUdp(answer), serveUdp(answerForeign)] as const;
    const dnsTcp = [serveTcp(answer), serveTcp(answerForeign)] as const;
    const connections = this.acceptor.serve();
    const all = [...dns, ...dnsTcp, connections];
    // A listener that cannot accept for want of descriptors must not end the program.
    for (const listener of all) listener.on('error', () => {});
    const isListening = all.map((listener) => once(listener, 'listening'));
    dns[0].bind({ fd: descriptors['dns-udp'] });
    dns[1].bind({ fd: descriptors['foreign-dns-udp'] });
    dnsTcp[0].listen({ fd: descriptors['dns-tcp'] });
    dnsTcp[1].listen({ fd: descriptors['foreign-dns-tcp'] });
    connections.listen({ fd: descriptors.connections, backlog: BACKLOG });
    await Promise.all(isListening);
  }

  private apply(message: Settings): void {
    switch (message.type) {
      case 'authority':
        this.interceptor.setAuthority(message.authority);
        return;
      case 'sandbox':
        this.table.set(message.sandbox);
        return;
      case 'forget':
        this.acceptor.forget(message.id);
        this.link.flows(this.flows.report(message.id));
        this.table.forget(message.id);
        return;
      case 'serve':
        this.noteServing();
    }
  }

  private close(): void {
    for (const timer of this.timers) clearInterval(timer);
    this.denials.flush();
    this.link.flows(this.flows.report());
  }
}
