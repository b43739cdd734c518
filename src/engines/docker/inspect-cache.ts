import type Docker from 'dockerode';
import { sleep } from '../../lib/sleep.js';
import type { Holding } from '../../engine/runtime.js';
import { isBaseline, parseEngineTime, runOfContainer } from './container-name.js';
import { IMAGE_LABEL, ORG_LABEL, SANDBOX_LABEL } from './container.js';
import { ignoreStatus, NOT_FOUND } from './errors.js';
import type { UnansweredCalls } from './unanswered-calls.js';

const AT_ONCE = 4;
/** A start holds the lock of its container for less. */
const WAIT_MS = 1_000;

interface Inspected {
  fingerprint: string;
  /** The number of process 1 on the machine of the engine. */
  pid: number;
  holding: Holding;
}

/** Inspects containers of sandboxes again only after a change: each inspection costs a request. */
export class InspectCache {
  private entries = new Map<string, Inspected>();
  private readonly hanging = new Set<string>();

  constructor(
    private readonly docker: Docker,
    private readonly calls: UnansweredCalls,
  ) {}

  forget(): void {
    this.entries.clear();
  }

  containersOf(sandboxIds: readonly string[]): { id: string; sandboxId: string; pid: number }[] {
    const wanted = new Set(sandboxIds);
    return [...this.entries].flatMap(
      ([
        id,
        {
          pid,
          holding: { sandboxId },
        },
      ]) => (wanted.has(sandboxId) ? [{ id, sandboxId, pid }] : []),
    );
  }

  /** Never waits long for one container: the engine may hold its lock for as long as a call of it hangs. */
  async list(containers: readonly Docker.ContainerInfo[]): Promise<Holding[]> {
    const entries: typeof this.entries = new Map();
    const unknown: Holding[] = [];
    const left = [...containers];
    const workers = Array.from({ length: AT_ONCE }, async () => {
      for (let container = left.shift(); container; container = left.shift()) {
        const inspected = await this.inspectChanged(container, this.entries.get(container.Id));
        if (inspected === 'unknown') unknown.push(...unknownHolding(container));
        else if (inspected) entries.set(container.Id, inspected);
      }
    });
    await Promise.all(workers);
    this.entries = entries;
    return [...[...entries.values()].map(({ holding }) => holding), ...unknown];
  }

  private async inspectChanged(
    container: Docker.ContainerInfo,
    cached: Inspected | undefined,
  ): Promise<Inspected | 'unknown' | undefined> {
    const fingerprint = `${container.Names[0]} ${container.State}`;
    if (cached?.fingerprint === fingerprint) return cached;
    const inspected = await this.inspectInTime(container);
    if (inspected === 'unknown') {
      // The engine fails for this container only. A missing run would count as lost.
      const runId = runOfContainer(container.Names[0]!, container.Labels)?.runId;
      return cached !== undefined && runId === cached.holding.runId ? cached : 'unknown';
    }
    if (!inspected) return undefined;
    // Another state in the list means that the container changed in between.
    const settled = inspected.fingerprint === fingerprint && inspected.holding.state !== 'prepared';
    return { ...inspected, fingerprint: settled ? fingerprint : '' };
  }

  /** One inspection at a time: each that hangs occupies the engine. A list waits for the first look at it only. */
  private async inspectInTime({
    Id,
    Labels,
  }: Docker.ContainerInfo): Promise<Inspected | 'unknown' | undefined> {
    if (this.hanging.has(Id)) return 'unknown';
    const sandboxId = Labels[SANDBOX_LABEL] ?? '';
    const inspecting = this.calls
      .track(sandboxId, 'inspection', this.inspect(Id))
      .catch(() => 'unknown' as const);
    const waited = new AbortController();
    const late = sleep(WAIT_MS, waited.signal).then(() => 'late' as const);
    const found = await Promise.race([inspecting, late]);
    waited.abort();
    if (found !== 'late') return found;
    this.hanging.add(Id);
    void inspecting.finally(() => this.hanging.delete(Id));
    return 'unknown';
  }

  private async inspect(id: string): Promise<Inspected | undefined> {
    const inspected = await this.docker.getContainer(id).inspect().catch(ignoreStatus(NOT_FOUND));
    const named = inspected && runOfContainer(inspected.Name, inspected.Config.Labels);
    if (!inspected || !named) return undefined;
    const { State } = inspected;
    const startedAt = parseEngineTime(State.StartedAt);
    const { sandboxId, runId } = named;
    const ids = { orgId: inspected.Config.Labels[ORG_LABEL] ?? '', sandboxId, runId };
    const started = !isBaseline(startedAt, named.baseline);
    const exited = started && !State.Running;
    return {
      fingerprint: `${inspected.Name} ${State.Status}`,
      pid: State.Pid,
      holding: {
        ...ids,
        imageDigest: inspected.Config.Labels[IMAGE_LABEL],
        state: !started ? 'prepared' : exited ? 'exited' : 'running',
        startedAt: started ? startedAt : null,
        finishedAt: exited ? parseEngineTime(State.FinishedAt) : null,
        exit: exited ? { code: State.ExitCode, outOfMemory: State.OOMKilled } : null,
      },
    };
  }
}

function unknownHolding({ Names, Labels }: Docker.ContainerInfo): Holding[] {
  const named = runOfContainer(Names[0]!, Labels);
  if (!named) return [];
  const { sandboxId, runId } = named;
  const nothing = { startedAt: null, finishedAt: null, exit: null };
  return [{ orgId: Labels[ORG_LABEL] ?? '', sandboxId, runId, state: 'unknown', ...nothing }];
}
