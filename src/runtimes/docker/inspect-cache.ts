import type Docker from 'dockerode';
import type { Holding } from '../runtime.js';
import { isBaseline, parseEngineTime, runOfContainer } from './container-name.js';
import { ORG_LABEL } from './container.js';
import { ignoreStatus, NOT_FOUND } from './errors.js';

interface Inspected {
  fingerprint: string;
  /** The number of process 1 on the machine of the engine. */
  pid: number;
  holding: Holding;
}

/** Inspects containers of sandboxes again only after a change: each inspection costs a request. */
export class InspectCache {
  private entries = new Map<string, Inspected>();

  constructor(private readonly docker: Docker) {}

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

  async list(containers: readonly Docker.ContainerInfo[]): Promise<Holding[]> {
    const entries: typeof this.entries = new Map();
    for (const container of containers) {
      const inspected = await this.inspectChanged(container, this.entries.get(container.Id));
      if (inspected) entries.set(container.Id, inspected);
    }
    this.entries = entries;
    return [...entries.values()].map(({ holding }) => holding);
  }

  private async inspectChanged(
    container: Docker.ContainerInfo,
    cached: Inspected | undefined,
  ): Promise<Inspected | undefined> {
    const fingerprint = `${container.Names[0]} ${container.State}`;
    if (cached?.fingerprint === fingerprint) return cached;
    let inspected: Inspected | undefined;
    try {
      inspected = await this.inspect(container.Id);
    } catch (error) {
      // The engine fails for this container only. Without a previous record the list fails: a missing run would count
      // as lost.
      const runId = runOfContainer(container.Names[0]!, container.Labels)?.runId;
      if (cached === undefined || runId !== cached.holding.runId) throw error;
      return cached;
    }
    if (!inspected) return undefined;
    // Another state in the list means that the container changed in between.
    const settled = inspected.fingerprint === fingerprint && inspected.holding.state !== 'prepared';
    return { ...inspected, fingerprint: settled ? fingerprint : '' };
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
        state: !started ? 'prepared' : exited ? 'exited' : 'running',
        startedAt: started ? startedAt : null,
        finishedAt: exited ? parseEngineTime(State.FinishedAt) : null,
        exit: exited ? { code: State.ExitCode, outOfMemory: State.OOMKilled } : null,
      },
    };
  }
}
