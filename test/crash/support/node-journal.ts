import Docker from 'dockerode';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { microsOf, parseInstant } from '../../../src/lib/instant.js';

/** A run as the Docker engine of its node recorded it, without the cluster. Times in microseconds since 1970. */
export interface NodeRun {
  node: number;
  starts: number;
  startedAt: bigint;
  endedAt: bigint | null;
}

interface EngineEvent {
  Action: string;
  timeNano: number;
  id: string;
  Actor: { Attributes: Record<string, string> };
}

const POD = /^sandkeep-([0-9a-f-]{36})$/;

/** Follows the engines of the nodes, because a container is removed with its Pod. */
export class NodeJournal {
  /** By run. */
  readonly runs = new Map<string, NodeRun>();
  private readonly streams = new Map<number, Readable>();
  private isClosed = false;

  constructor(private readonly namespace: string) {}

  async follow(node: number, socketPath: string): Promise<void> {
    const docker = new Docker({ socketPath });
    const stream = (await docker.getEvents({
      filters: {
        type: ['container'],
        event: ['start', 'die'],
        label: ['io.kubernetes.container.name=sandbox'],
      },
    })) as unknown as Readable;
    this.streams.set(node, stream);
    stream.on('error', () => undefined);
    createInterface(stream).on('line', (line) => {
      void this.note(docker, node, JSON.parse(line) as EngineEvent);
    });
  }

  /** The containers of a destroyed node ended now. */
  noteDestroyed(node: number): void {
    this.streams.get(node)?.destroy();
    const now = BigInt(Date.now()) * 1_000n;
    for (const run of this.runs.values()) if (run.node === node) run.endedAt ??= now;
  }

  close(): void {
    this.isClosed = true;
    for (const stream of this.streams.values()) stream.destroy();
  }

  private async note(
    docker: Docker,
    node: number,
    { Action, id, timeNano, Actor }: EngineEvent,
  ): Promise<void> {
    const attributes = Actor.Attributes;
    const runId = POD.exec(attributes['io.kubernetes.pod.name'] ?? '')?.[1];
    if (runId === undefined || attributes['io.kubernetes.pod.namespace'] !== this.namespace) return;
    const at = BigInt(Math.round(timeNano / 1_000));
    if (Action === 'start') {
      const starts = (this.runs.get(runId)?.starts ?? 0) + 1;
      this.runs.set(runId, { node, starts, startedAt: at, endedAt: null });
    } else {
      const run = this.runs.get(runId);
      if (run) run.endedAt = at;
    }
    // The event comes a little after the recorded time.
    const found = await docker
      .getContainer(id)
      .inspect()
      .catch(() => undefined);
    const run = this.runs.get(runId);
    if (!found || !run || this.isClosed) return;
    run.startedAt = microsOf(parseInstant(found.State.StartedAt)!);
    if (Action === 'die') run.endedAt = microsOf(parseInstant(found.State.FinishedAt)!);
  }
}
