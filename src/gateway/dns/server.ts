import type { Answer } from 'dns-packet';
import { SlotQueue } from '../../fairness/slot-queue.js';
import { canonicalName, decideName, isDeniedByDomain, isNamedByRule } from '../../network-policy/domains.js';
import { lifetimeOf } from '../bindings.js';
import type { Denial } from '../protocol.js';
import type { GatedSandbox, SandboxTable } from '../sandbox.js';
import { AnswerCache } from './answer-cache.js';
import { QueryLimits } from './limits.js';
import { isReverseName, localReply, NAME_ERROR } from './local-names.js';
import type { ServerAddress } from './exchange.js';
import { NameServers } from './name-servers.js';
import { readQuery, type Query } from './query.js';
import { RCODES, TYPES } from './question.js';
import { encodeQuery, encodeReply, type Reply } from './reply.js';
import { readResolution, type Resolution } from './resolution.js';
import { isPublic, mayAsk, readServerAddress } from './server-address.js';

/**
 * Queries to name servers that are under way, in all and of one organization. Others wait for their turn. Name servers
 * of a specification may be slow on purpose, so those of the machine have slots of their own.
 */
const UPSTREAM = {
  total: 1_024,
  each: 128,
  waiting: { total: 4_096, each: 1_024 },
  maxWaitMs: 2_000,
};
const SERVER_FAILURE: Reply = { rcode: RCODES.servFail };
const REFUSED: Reply = { rcode: RCODES.refused };

/** The parts of the gateway that the name server needs. */
export interface NameServices {
  /** Resolves when the kernel has the addresses. False: it has not. */
  bind(sandbox: string, name: string, addresses: string[], ttlSecs: number): Promise<boolean>;
  /** Asks the name servers of the machine. */
  ask(query: Buffer, timeoutMs: number): Promise<Buffer | undefined>;
  denied(denial: Denial): void;
}

/** The only resolver of gated sandboxes. It answers names that the policy of the sandbox can allow. */
export class NameServer {
  private readonly limits = new QueryLimits();
  private readonly cache = new AnswerCache();
  private readonly machineSlots = new SlotQueue(UPSTREAM);
  private readonly ownSlots = new SlotQueue(UPSTREAM);
  /** New settings make a new sandbox, so the list never changes. */
  private readonly servers = new WeakMap<GatedSandbox, NameServers>();

  constructor(
    private readonly table: SandboxTable,
    private readonly services: NameServices,
    private readonly isReachable: typeof mayAsk = mayAsk,
  ) {}

  /** Answers a message from an address, which the kernel has checked. Undefined: it gets no answer. Never rejects. */
  async handle(message: Buffer, from: string, transport: 'udp' | 'tcp'): Promise<Buffer | undefined> {
    const sandbox = this.table.at(from);
    // The service does not know its secrets yet. An answer lets musl go on, which waits for one for seconds.
    if (!sandbox) return failure(message, transport);
    const release = this.limits.admit(sandbox.settings);
    if (!release) return undefined;
    try {
      const read = readQuery(message);
      if (!read) return undefined;
      if ('refusal' in read) return read.refusal;
      const reply = await this.reply(sandbox, read.query).catch(() => SERVER_FAILURE);
      // Another sandbox may have the address by now.
      if (this.table.at(from)?.settings.id !== sandbox.settings.id) return undefined;
      return encodeReply(read.query, reply, transport);
    } finally {
      release();
    }
  }

  private async reply(sandbox: GatedSandbox, query: Query): Promise<Reply> {
    if ((query.edns?.version ?? 0) !== 0) return { rcode: RCODES.badVers };
    const name = query.name === undefined ? undefined : canonicalName(query.name);
    if (name === undefined) return REFUSED;
    const local = localReply(name, query, sandbox.settings.dns.rebindProtection);
    if (local) return local;
    const verdict = decideName(sandbox.settings.policy, name);
    if (verdict.action === 'deny') {
      // Programs look up addresses only to show names. A refusal would be noise, and costs musl five seconds.
      if (isReverseName(name)) return NAME_ERROR;
      const reason = 'the network policy allows no connection to this name';
      return this.refuse(sandbox, { name, rule: verdict.rule, reason });
    }
    if (!RELAYED.has(query.type)) return withoutData(query);
    const resolution = await this.resolve(sandbox, name, query.type);
    return resolution ? this.admit(sandbox, query, name, resolution) : SERVER_FAILURE;
  }

  /** Checks an answer of the name servers, binds its addresses, and makes the reply of it. */
  private async admit(
    { settings: { id } }: GatedSandbox,
    query: Query,
    name: string,
    resolution: Resolution,
  ): Promise<Reply> {
    // The settings may have changed while the name servers were asked.
    const sandbox = this.table.byIdOf(id);
    if (!sandbox) return SERVER_FAILURE;
    const { policy, dns } = sandbox.settings;
    const denied = [name, ...resolution.aliases].find((alias) => isDeniedByDomain(policy, alias));
    if (denied !== undefined || decideName(policy, name).action === 'deny') {
      const { rule } = decideName(policy, denied ?? name);
      const reason =
        denied === undefined || denied === name
          ? 'the network policy allows no connection to this name'
          : `the name is an alias of ${denied}, which the network policy denies`;
      return this.refuse(sandbox, { name, rule, reason });
    }
    const { rcode, answers, authorities, ttlSecs } = resolution;
    const addresses = dns.rebindProtection ? resolution.addresses.filter(isPublic) : resolution.addresses;
    if (addresses.length === 0 && resolution.addresses.length > 0) {
      const [address] = resolution.addresses;
      const reason =
        'rebinding protection: the name has no public address, and no policy setting allows others';
      return this.refuse(sandbox, { name, address: address!, reason });
    }
    if (addresses.length > 0) {
      const lifetime = lifetimeOf(ttlSecs);
      const isInKernel =
        !isNamedByRule(policy, name) || (await this.services.bind(id, name, addresses, lifetime));
      if (!isInKernel) return SERVER_FAILURE;
      sandbox.bindings.bind(name, addresses, lifetime);
    }
    const isAnswered = (record: Answer) => record.type !== 'A' || addresses.includes(record.data);
    return {
      rcode,
      answers: answers.filter(isAnswered).map((record) => asAsked(record, query, ttlSecs)),
      authorities: authorities.map((record) => ({ ...record, ttl: ttlSecs })),
    };
  }

  private refuse(
    { settings: { id } }: GatedSandbox,
    denial: Pick<Denial, 'name' | 'address' | 'rule' | 'reason'>,
  ): Reply {
    this.services.denied({ sandbox: id, at: Date.now(), kind: 'name', protocol: 'dns', ...denial });
    return REFUSED;
  }

  /** From the cache, or from the name servers. The lifetime is what is left of it. */
  private async resolve(sandbox: GatedSandbox, name: string, type: number): Promise<Resolution | undefined> {
    const { orgId, dns } = sandbox.settings;
    const key = JSON.stringify([name, type, dns.nameservers, dns.queryTimeoutMs]);
    const cached = this.cache.get(orgId, key);
    if (cached) {
      const resolution = this.read(sandbox, cached.message, name, type);
      return resolution && { ...resolution, ttlSecs: Math.max(0, resolution.ttlSecs - cached.ageSecs) };
    }
    const message = await this.cache.share(orgId, key, () =>
      this.askServers(sandbox, encodeQuery(name, type)),
    );
    const resolution = message && this.read(sandbox, message, name, type);
    if (resolution) this.cache.set(orgId, key, message, resolution.ttlSecs);
    return resolution;
  }

  private read(
    { settings }: GatedSandbox,
    message: Buffer,
    name: string,
    type: number,
  ): Resolution | undefined {
    const began = performance.now();
    const resolution = readResolution(message, name, type);
    this.limits.spend(settings, performance.now() - began);
    return resolution;
  }

  private askServers(sandbox: GatedSandbox, query: Buffer): Promise<Buffer | undefined> {
    const { orgId, dns } = sandbox.settings;
    if (dns.nameservers.length === 0)
      return this.machineSlots.run(orgId, () => this.services.ask(query, dns.queryTimeoutMs));
    const servers = this.servers.get(sandbox) ?? this.serversOf(sandbox);
    this.servers.set(sandbox, servers);
    return this.ownSlots.run(orgId, () => servers.query(query, dns.queryTimeoutMs));
  }

  private serversOf(sandbox: GatedSandbox): NameServers {
    const { id, dns } = sandbox.settings;
    const servers: ServerAddress[] = [];
    for (const text of dns.nameservers) {
      const server = readServerAddress(text);
      if (server && this.isReachable(sandbox, server)) servers.push(server);
      else {
        const reason = `the gateway may not ask the name server ${text}: use a public one, or allow its address by a rule`;
        this.services.denied({ sandbox: id, at: Date.now(), kind: 'name', protocol: 'dns', reason });
      }
    }
    return new NameServers(servers);
  }
}

function failure(message: Buffer, transport: 'udp' | 'tcp'): Buffer | undefined {
  const read = readQuery(message);
  if (!read) return undefined;
  return 'refusal' in read ? read.refusal : encodeReply(read.query, SERVER_FAILURE, transport);
}

/**
 * The types that are passed on. A name may carry data in any of them, and in itself. So the policy decides about names
 * alone. Other types of an allowed name have no record. AAAA has none because sandboxes have no IPv6. HTTPS and SVCB
 * have addresses and keys of encrypted client hello, which rules by domain cannot follow.
 */
const RELAYED = new Set<number>([
  TYPES.A,
  TYPES.NS,
  TYPES.CNAME,
  TYPES.SOA,
  TYPES.PTR,
  TYPES.MX,
  TYPES.TXT,
  TYPES.SRV,
  TYPES.NAPTR,
  TYPES.CAA,
]);

function withoutData({ type, name }: Query): Reply {
  if (type === TYPES.AXFR || type === TYPES.IXFR) return REFUSED;
  // RFC 8482: a record that says that ANY has no answer.
  const answers: Answer[] =
    type === TYPES.ANY
      ? [{ type: 'HINFO', name: name!, ttl: 3_600, class: 'IN', data: { cpu: 'RFC8482', os: '' } }]
      : [];
  return { rcode: RCODES.noError, answers };
}

/** The name keeps the case of the question, which some clients compare. The lifetime is that of the binding. */
function asAsked(record: Answer, { name }: Query, ttl: number): Answer {
  const isAsked = record.name.toLowerCase() === name?.toLowerCase();
  return { ...record, ttl, name: isAsked ? name : record.name } as Answer;
}
