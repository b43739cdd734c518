import { createHash } from 'node:crypto';
import type { Socket } from 'node:net';
import { ConnectError } from '../../../engine/connect-error.js';
import type { PortPlace } from '../../../engine/runtime.js';
import { Slots } from '../../../fairness/slots.js';
import { ApiError } from '../../../http/errors.js';
import type { ContainerProcess } from '../container-namespace.js';
import { PortProgram, ProgramEndedError } from './port-program.js';

/** A program without a connection for so long ends. */
const IDLE_MS = 60_000;
/** After a failure the connections of the sandbox take the other way for so long: the machine lacks this one. */
const RETRY_MS = 30_000;
/** Where this machine has the way, the sandbox has just ended. */
const SOON_MS = 500;
/** As in guest/connect/main.c. */
const PROCESS_1 = 0;
const WAYS = { agent: 0, handover: 1 };
/** The kernel answers at once. */
const LONGEST_WAIT_MS = 5_000;
/** No account of a machine and no range of its containers has these (systemd.io/UIDS-GIDS). */
const USERS = { first: 1_900_000_000, count: 90_000_000 };

/** Connections at once. Previews have lower limits; these include the idle ones that they keep. */
export interface PortLimits {
  total: number;
  ofOrg: number;
  ofSandbox: number;
}

export const PORT_LIMITS: PortLimits = { total: 20_000, ofOrg: 7_500, ofSandbox: 2_500 };

interface Entry {
  program: Promise<PortProgram | undefined>;
  idle?: NodeJS.Timeout;
}

interface DirectPortsOptions {
  instanceId: string;
  /** Undefined: the sandbox does not run. */
  find: (sandboxId: string) => Promise<ContainerProcess | undefined>;
  limits?: PortLimits;
}

/**
 * Connections to ports of sandboxes past the engine and the agent: their bytes stay in this process and the kernel. One
 * program for each sandbox in use opens them.
 */
export class DirectPorts {
  private readonly entries = new Map<string, Entry>();
  private readonly user: number;
  private readonly ofSandboxes: Slots;
  private readonly ofOrgs: Slots;
  private hasWorked = false;
  private isClosed = false;

  constructor(private readonly options: DirectPortsOptions) {
    const { total, ofOrg, ofSandbox } = this.limits;
    this.ofSandboxes = new Slots({ total, each: ofSandbox });
    this.ofOrgs = new Slots({ total, each: ofOrg });
    this.user = userOf(options.instanceId);
  }

  /**
   * Undefined: the connection has to take the way through the agent. Throws ConnectError with the words of the kernel.
   */
  async connect({ orgId, sandboxId, port }: PortPlace, signal: AbortSignal): Promise<Socket | undefined> {
    const entry = this.entryOf(sandboxId);
    const program = await entry?.program;
    if (!entry || !program) return undefined;
    return open(entry, program, port, { signal, release: this.acquire(orgId, sandboxId) });
  }

  /**
   * A connection to process 1 of a sandbox, which starts an agent, or takes a handover. Undefined: process 1 cannot be
   * reached, or does not listen.
   */
  async connectProcess(
    sandboxId: string,
    container: ContainerProcess,
    way: keyof typeof WAYS,
  ): Promise<Socket | undefined> {
    const entry = this.entryOf(sandboxId, container);
    const program = await entry?.program;
    if (!entry || !program) return undefined;
    const signal = AbortSignal.timeout(LONGEST_WAIT_MS);
    try {
      const release = () => undefined;
      return await open(entry, program, PROCESS_1, { signal, release, way: WAYS[way] });
    } catch (error) {
      // A sandbox of an earlier release has another process 1. Node drops a socket for which it has no descriptor left.
      if (error instanceof ConnectError || signal.aborted) return undefined;
      throw error;
    }
  }

  /** Whether this machine has the way. It shows with the first sandbox. */
  get works(): boolean {
    return this.hasWorked;
  }

  close(): void {
    this.isClosed = true;
    for (const { program, idle } of this.entries.values()) {
      clearTimeout(idle);
      void program.then((started) => started?.kill());
    }
  }

  private get limits(): PortLimits {
    return this.options.limits ?? PORT_LIMITS;
  }

  private entryOf(sandboxId: string, container?: ContainerProcess): Entry | undefined {
    const known = this.entries.get(sandboxId);
    if (known || this.isClosed) return known;
    const entry: Entry = { program: this.start(sandboxId, container) };
    this.entries.set(sandboxId, entry);
    const forget = () => {
      clearTimeout(entry.idle);
      if (this.entries.get(sandboxId) === entry) this.entries.delete(sandboxId);
    };
    void this.forgetLater(entry, forget);
    return entry;
  }

  private async forgetLater(entry: Entry, forget: () => void): Promise<void> {
    const program = await entry.program;
    if (!program) return void setTimeout(forget, this.hasWorked ? SOON_MS : RETRY_MS).unref();
    this.hasWorked = true;
    if (this.isClosed) program.kill();
    // The request that started it may be refused at a limit.
    endWhenIdle(entry, program);
    await program.ended;
    forget();
  }

  private async start(
    sandboxId: string,
    known: ContainerProcess | undefined,
  ): Promise<PortProgram | undefined> {
    try {
      const container = known ?? (await this.options.find(sandboxId));
      return container && (await PortProgram.start(container, this.user));
    } catch {
      // The engine is on another machine, or the service lacks a right. The agent needs neither.
      return undefined;
    }
  }

  private acquire(orgId: string, sandboxId: string): () => void {
    const { ofOrg, ofSandbox } = this.limits;
    const releaseSandbox = this.ofSandboxes.acquire(sandboxId) ?? refuse('this sandbox', ofSandbox);
    const releaseOrg = this.ofOrgs.acquire(orgId);
    if (!releaseOrg) {
      releaseSandbox();
      return refuse('sandboxes of this organization', ofOrg);
    }
    return () => {
      releaseSandbox();
      releaseOrg();
    };
  }
}

function endWhenIdle(entry: Entry, program: PortProgram): void {
  if (program.size > 0) return;
  clearTimeout(entry.idle);
  entry.idle = setTimeout(() => program.size === 0 && program.kill(), IDLE_MS).unref();
}

async function open(
  entry: Entry,
  program: PortProgram,
  port: number,
  { signal, release, way = 0 }: { signal: AbortSignal; release: () => void; way?: number },
): Promise<Socket | undefined> {
  clearTimeout(entry.idle);
  const done = () => {
    release();
    endWhenIdle(entry, program);
  };
  try {
    const socket = await program.connect(port, signal, way);
    return socket.once('close', done);
  } catch (error) {
    done();
    // The sandbox has ended, which the agent tells, or somebody has killed the program.
    if (error instanceof ProgramEndedError) return undefined;
    throw error;
  }
}

function refuse(subject: string, limit: number): never {
  const message = `at most ${limit} connections to ports of ${subject} are open at once: close some`;
  throw new ApiError('rate_limited', message, null, { headers: { 'retry-after': '1' } });
}

/** Apart from that of the gateway: processes of one user can end each other. */
function userOf(instanceId: string): number {
  const hash = createHash('sha256').update(`${instanceId} ports`).digest().readUInt32BE(0);
  return USERS.first + (hash % USERS.count);
}
