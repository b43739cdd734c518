import type { GatewayServices } from '../../engine/definition.js';
import { StartRefusedError, type Run } from '../../engine/runtime.js';
import { SlotQueue } from '../../fairness/slot-queue.js';
import type { Authority, FromGateway } from '../../gateway/protocol.js';
import { sleep } from '../../lib/sleep.js';
import type { Surroundings } from '../../network-policy/evaluate.js';
import { changedAddresses } from '../compile-policy.js';
import type { GatewayNamespace, LinkedNamespace } from '../namespace.js';
import { applyRules } from '../nftables.js';
import { GatedSandbox, type GatedRun } from './gated-sandbox.js';
import { DELIVERY, gatewayRules, knownSandbox, NO_DELIVERY } from './gateway-rules.js';
import { GatewayProgram } from './gateway-program.js';
import { KeptListeners } from './kept-listeners.js';
import { ipIn, outerLink } from './links.js';

/** The pause before another start of a program that has run for a shorter time than STEADY_MS. */
const RESTART_MS = 500;
/** A program that has run for so long is started again at once: the traffic of its sandboxes waits for it. */
const STEADY_MS = 5_000;
/** A new program serves after this time, also when the database has not told it of every sandbox. */
const SETTLE_MS = 1_000;
/** How often the holder and the lease are looked at. */
const CHECK_MS = 500;
/**
 * A start waits so long for the gateway, `mostMs` while no attempt to start it has failed: on a busy machine it takes
 * long to start.
 */
const READY = { usualMs: 10_000, mostMs: 60_000 };
const READY_POLL_MS = 20;
/** Programs that change sets of the kernel at once, in all and for one organization. */
const PROGRAMS = { total: 4, each: 2 };

export interface GatewayOptions {
  instanceId: string;
  services: GatewayServices;
  /** Asks the name servers of the machine, or those that the operator chose. */
  ask: (query: Buffer, timeoutMs: number) => Promise<Buffer | undefined>;
  resolvers: () => readonly string[];
  openableGroups: Surroundings['openableGroups'];
  /** Makes the namespace of the gateway where it is missing. */
  holder: () => Promise<GatewayNamespace>;
  /** The addresses of the machine, with those of its bridges, and the subnets of the bridges. */
  addresses: () => { hosts: readonly string[]; neighbours: readonly string[] };
  surroundingsOf: (network: LinkedNamespace) => Surroundings;
  /** The sandboxes with a gateway that run now. */
  running: () => Promise<{ run: GatedRun; network: LinkedNamespace }[]>;
  /** Default: READY. */
  ready?: typeof READY;
}

interface Ready {
  program: GatewayProgram;
  holder: GatewayNamespace;
}

/**
 * Keeps the gateway of this machine running while this process acts on the engine. Without it, the kernel drops what
 * needs it: nothing listens in its namespace.
 */
export class GatewaySupervisor {
  private readonly sandboxes = new Map<string, GatedSandbox>();
  private readonly forgetting = new Map<string, Promise<void>>();
  private readonly programs = new SlotQueue(PROGRAMS);
  private ready: Ready | undefined;
  private failure = 'it has not been started';
  /** The number of programs that ended, and of attempts to start one that failed. */
  private failures = 0;
  private stopping = new AbortController();
  private noteNeed: () => void = () => undefined;
  /** Resolves with the first sandbox that needs the gateway: a machine without one runs no gateway. */
  private readonly needed = new Promise<void>((resolve) => (this.noteNeed = resolve));
  private loop: Promise<void> = Promise.resolve();
  /** Another process acted until now: the namespace may have rules and links of its gateway. */
  private configured: string | undefined;
  private readonly listeners: KeptListeners;

  constructor(private readonly options: GatewayOptions) {
    this.listeners = new KeptListeners(options.instanceId);
  }

  /** Runs the gateway while `term` is valid. */
  start(term: { readonly valid: boolean }): void {
    this.stopping.abort();
    const stopping = (this.stopping = new AbortController());
    this.loop = this.loop.then(async () => this.supervise(term, stopping.signal));
  }

  /** Before a run whose rules are loaded. Throws StartRefusedError. */
  async add(run: Run & GatedRun, network: LinkedNamespace, surroundings: Surroundings): Promise<void> {
    const { orgId, sandboxId, spec, secrets } = run;
    const sandbox = this.sandboxOf({ orgId, sandboxId, spec }, network, surroundings);
    // The engine gives out an address again as soon as its sandbox has ended, before the end is listed.
    for (const [id, { address }] of this.sandboxes)
      if (id !== sandboxId && address === sandbox.address) this.forget(id);
    this.sandboxes.set(sandboxId, sandbox);
    this.noteNeed();
    try {
      // The element of an earlier run is the same.
      await this.forgetting.get(sandboxId);
      const { program } = await this.link(sandbox);
      // The names of an earlier run are gone: their addresses are no longer in the sets of the kernel.
      program.send({ type: 'forget', id: sandboxId });
      program.send({ type: 'sandbox', sandbox: sandbox.settings(secrets) });
    } catch (cause) {
      this.forget(sandboxId);
      if (cause instanceof StartRefusedError) throw cause;
      throw new StartRefusedError(
        'the sandbox cannot be joined to the gateway of the network; the operator finds the reason in the log of the service',
        { cause },
      );
    }
  }

  /** The gateway may get another namespace meanwhile. */
  private async link(sandbox: GatedSandbox): Promise<Ready> {
    const { usualMs, mostMs } = this.options.ready ?? READY;
    const { failures } = this;
    for (const begun = performance.now(); ; await sleep(READY_POLL_MS)) {
      if (performance.now() - begun > (this.failures > failures ? usualMs : mostMs)) {
        throw new StartRefusedError(
          'the gateway of the network does not run on this machine; the operator finds the reason with "sandkeep doctor"',
          { cause: this.failure },
        );
      }
      const { ready } = this;
      if (!ready) continue;
      const { holder } = ready;
      try {
        await holder.enter(async (descriptor) => sandbox.link({ descriptor, key: holder.key }));
      } catch (error) {
        if (holder.isAlive()) throw error;
        continue;
      }
      const now = this.ready;
      if (now?.holder.key === holder.key) return now;
    }
  }

  /** A gateway that starts again gets the same from the store. */
  changeSecrets({ orgId, sandboxId, spec, secrets }: GatedRun & Pick<Run, 'secrets'>): void {
    const sandbox = this.sandboxes.get(sandboxId);
    if (!sandbox) return;
    sandbox.run = { orgId, sandboxId, spec };
    this.ready?.program.send({ type: 'sandbox', sandbox: sandbox.settings(secrets) });
  }

  /** The machine has other addresses than before. A program that starts later reads them itself. */
  async changeAddresses(): Promise<void> {
    for (const sandbox of this.sandboxes.values())
      sandbox.surroundings = this.options.surroundingsOf(sandbox.network);
    const { ready } = this;
    if (!ready) return;
    const { holder, program } = ready;
    await holder.enter(async (descriptor) =>
      applyRules(descriptor, changedAddresses(this.addressesFor(holder))),
    );
    const ended = new AbortController();
    void program.ended.then(() => ended.abort());
    // The database may be away for long.
    void this.sendAll(program, ended.signal).catch(() => undefined);
  }

  /** The sandbox has ended, or begins a run without the gateway. */
  forget(sandboxId: string): void {
    const sandbox = this.sandboxes.get(sandboxId);
    if (!sandbox) return;
    this.sandboxes.delete(sandboxId);
    const { ready } = this;
    if (!ready) return;
    ready.program.send({ type: 'forget', id: sandboxId });
    const known = knownSandbox('delete', outerLink(sandboxId), sandbox.address);
    // The link is gone with the namespace of the sandbox. A remaining element admits no packet.
    const removing = ready.holder
      .enter(async (descriptor) => applyRules(descriptor, known))
      .catch(() => undefined)
      .finally(() => this.forgetting.delete(sandboxId));
    this.forgetting.set(sandboxId, removing);
  }

  /** A list of the engine may be older than a start, so one list alone decides nothing. */
  keepOnly(isRunning: (sandboxId: string) => boolean): void {
    for (const [id, sandbox] of this.sandboxes) {
      if (isRunning(id)) sandbox.isMissing = false;
      else if (sandbox.isMissing) this.forget(id);
      else sandbox.isMissing = true;
    }
  }

  async close(): Promise<void> {
    this.stopping.abort();
    await this.loop;
  }

  private sandboxOf(run: GatedRun, network: LinkedNamespace, surroundings: Surroundings): GatedSandbox {
    return new GatedSandbox(run, network, surroundings, async (orgId, act) => {
      const release = await this.programs.hold(orgId);
      await act().finally(release);
    });
  }

  private async supervise(term: { readonly valid: boolean }, signal: AbortSignal): Promise<void> {
    this.configured = undefined;
    let isDiscovered = false;
    let holder: GatewayNamespace | undefined;
    while (!signal.aborted && term.valid) {
      const begun = performance.now();
      try {
        if (!isDiscovered) {
          await this.discover();
          isDiscovered = true;
          if (this.sandboxes.size === 0) await Promise.race([this.needed, abortOf(signal)]);
          continue;
        }
        if (!holder?.isAlive()) holder = await this.options.holder();
        const current = holder;
        this.failure = await current.enter(async (descriptor) =>
          this.runOnce({ holder: current, descriptor }, term, signal),
        );
      } catch (error) {
        this.failure = (error as Error).message;
        holder = undefined;
      }
      this.ready = undefined;
      this.failures += 1;
      if (!signal.aborted && term.valid) this.options.services.ended?.(this.failure);
      if (performance.now() - begun < STEADY_MS) await sleep(RESTART_MS, signal);
    }
    await this.listeners.close();
  }

  /** Runs the program until it ends. Returns the reason. */
  private async runOnce(
    { holder, descriptor }: { holder: GatewayNamespace; descriptor: number },
    term: { readonly valid: boolean },
    signal: AbortSignal,
  ): Promise<string> {
    const { instanceId } = this.options;
    await this.configure(holder, descriptor);
    const fault = await this.listeners.open({ descriptor, key: holder.key });
    if (fault !== undefined) return fault;
    let noteReady: () => void = () => undefined;
    const isReady = new Promise<undefined>((resolve) => (noteReady = () => resolve(undefined)));
    const program: GatewayProgram = new GatewayProgram({ instanceId, namespace: descriptor }, (message) => {
      if (message.type === 'ready') noteReady();
      else void this.answer(program, message).catch(() => program.kill());
    });
    const checks = setInterval(() => {
      if (!term.valid || !holder.isAlive()) program.kill();
    }, CHECK_MS);
    const end = () => program.end();
    signal.addEventListener('abort', end, { once: true });
    if (signal.aborted) end();
    const ended = new AbortController();
    try {
      const early = await Promise.race([isReady, program.ended]);
      if (early !== undefined) return early;
      this.ready = { program, holder };
      await Promise.race([program.ended, this.sendAll(program, ended.signal)]);
      return await program.ended;
    } finally {
      ended.abort();
      clearInterval(checks);
      signal.removeEventListener('abort', end);
      program.kill();
      await program.ended;
      this.listeners.refuseLater();
    }
  }

  /** Tells a new program everything. The database may be away: until it answers, the traffic stays closed. */
  private async sendAll(program: GatewayProgram, signal: AbortSignal): Promise<void> {
    const { services } = this.options;
    const waiting = new Map(this.sandboxes);
    let authority = undefined as Authority | undefined;
    const serve = () => {
      if (signal.aborted) return;
      program.send({ type: 'serve' });
      this.listeners.serve();
    };
    const settled = setTimeout(serve, SETTLE_MS);
    signal.addEventListener('abort', () => clearTimeout(settled), { once: true });
    while (!signal.aborted && (waiting.size > 0 || !authority)) {
      if (!authority) {
        authority = await services.authority().catch(() => undefined);
        if (authority) program.send({ type: 'authority', authority });
      }
      for (const [id, sandbox] of waiting) {
        const { run } = sandbox;
        const secrets = await services.secrets(run.orgId, id).catch(() => undefined);
        if (!secrets) continue;
        waiting.delete(id);
        if (signal.aborted || this.sandboxes.get(id) !== sandbox) continue;
        // A change came meanwhile, and was sent.
        if (sandbox.run !== run) continue;
        program.send({ type: 'sandbox', sandbox: sandbox.settings(secrets) });
      }
      clearTimeout(settled);
      serve();
      if (waiting.size > 0 || !authority) await sleep(RESTART_MS, signal);
    }
  }

  /** Once for each namespace of a holder: its addresses and rules, and a link to each sandbox. */
  private async configure(holder: GatewayNamespace, descriptor: number): Promise<void> {
    const { key } = holder;
    if (this.configured !== key) {
      await ipIn(descriptor, NO_DELIVERY, [], ['-force']).catch(() => undefined);
      await ipIn(descriptor, DELIVERY);
      const { resolvers, openableGroups } = this.options;
      const addresses = this.addressesFor(holder);
      const rules = gatewayRules({ ...addresses, resolvers: resolvers(), openableGroups });
      await applyRules(descriptor, rules);
      for (const sandbox of this.sandboxes.values()) sandbox.linkedTo = undefined;
      this.configured = key;
    } else {
      await applyRules(descriptor, changedAddresses(this.addressesFor(holder)));
    }
    for (const sandbox of this.sandboxes.values()) {
      if (sandbox.linkedTo === key) continue;
      // It has ended meanwhile, or gets its link at the next start of the program. Without one nothing gets out.
      await sandbox.link({ descriptor, key }).catch(() => undefined);
    }
  }

  private addressesFor({ gateways, links }: GatewayNamespace): { hosts: string[]; neighbours: string[] } {
    const { hosts, neighbours } = this.options.addresses();
    return { hosts: [...hosts, ...gateways], neighbours: [...neighbours, ...links] };
  }

  private async discover(): Promise<void> {
    const { running, surroundingsOf } = this.options;
    for (const { run, network } of await running()) {
      if (!this.sandboxes.has(run.sandboxId))
        this.sandboxes.set(run.sandboxId, this.sandboxOf(run, network, surroundingsOf(network)));
    }
  }

  /** The program is not trusted: a message for a sandbox changes nothing but the sets of its own rules. */
  private async answer(program: GatewayProgram, message: FromGateway): Promise<void> {
    const { services } = this.options;
    switch (message.type) {
      case 'bind': {
        const { request, name, addresses, ttlSecs } = message;
        const sandbox = this.sandboxes.get(message.sandbox);
        const ok = (await sandbox?.sets.bind(name, addresses, ttlSecs).catch(() => false)) ?? false;
        program.send({ type: 'bound', request, ok });
        return;
      }
      case 'ask': {
        const { request, query, timeoutMs } = message;
        const answer = await this.options.ask(Buffer.from(query, 'base64'), timeoutMs).catch(() => undefined);
        program.send({
          type: 'asked',
          request,
          ...(answer === undefined ? {} : { answer: answer.toString('base64') }),
        });
        return;
      }
      case 'denied':
        if (this.sandboxes.has(message.denial.sandbox)) services.denied(message.denial);
        return;
      case 'flows':
        services.flows(message.flows);
        return;
      case 'ready':
    }
  }
}

async function abortOf(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
}
