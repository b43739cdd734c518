import { canonicalName } from '../../network-policy/domains.js';
import type { Denial } from '../protocol.js';
import type { SandboxTable } from '../sandbox.js';
import { QueryLimits } from './limits.js';
import { readQuery } from './query.js';
import { RCODES } from './question.js';
import { encodeReply } from './reply.js';

const REASON = 'another resolver was asked: only that of /etc/resolv.conf knows names in this sandbox';

/** Answers the queries that a sandbox sends to other resolvers: no name exists there. */
export class ForeignNameServer {
  private readonly limits = new QueryLimits();

  constructor(
    private readonly table: SandboxTable,
    private readonly link: { denied(denial: Denial): void },
  ) {}

  /** Undefined: the query gets no answer. */
  handle(message: Buffer, from: string, transport: 'udp' | 'tcp'): Promise<Buffer | undefined> {
    return Promise.resolve(this.answer(message, from, transport));
  }

  private answer(message: Buffer, from: string, transport: 'udp' | 'tcp'): Buffer | undefined {
    const sandbox = this.table.at(from);
    const release = sandbox && this.limits.admit(sandbox.settings);
    release?.();
    const read = release && readQuery(message);
    if (!sandbox || !read) return undefined;
    if ('refusal' in read) return read.refusal;
    const name = read.query.name === undefined ? undefined : canonicalName(read.query.name);
    this.link.denied({
      sandbox: sandbox.settings.id,
      at: Date.now(),
      kind: 'name',
      protocol: 'dns',
      ...(name !== undefined && { name }),
      reason: REASON,
    });
    return encodeReply(read.query, { rcode: RCODES.nxDomain }, transport);
  }
}
