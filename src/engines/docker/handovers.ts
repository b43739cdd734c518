import type Docker from 'dockerode';
import type { Socket } from 'node:net';
import { lateEnvironment } from '../../engine/environment.js';
import { scriptTexts, SCRIPTS_DIRECTORY } from '../../engine/run-files.js';
import type { LatePart, Run } from '../../engine/runtime.js';
import { encodeHandover, handOver } from '../../guest/handover.js';
import { takesHandover } from '../../guest/programs.js';
import { parseJson } from '../../lib/json.js';
import { sleep } from '../../lib/sleep.js';
import { commandOf, ENTRYPOINT_LABEL } from './container.js';
import { findContainer, type DockerParts } from './parts.js';
import type { DirectPorts } from './ports/direct-ports.js';

/** Process 1 listens in a millisecond, on a machine that has one. */
const ATTEMPTS = 20;
const PAUSE_MS = 10;
const ROOT = /^(?:|0|root)(?::.*)?$/;

/** The way to process 1 of a member of a pool, which takes the command of a create after its start. */
export class Handovers {
  private readonly proven = new Map<string, readonly LatePart[]>();

  constructor(
    private readonly parts: DockerParts,
    private readonly ports: DirectPorts,
  ) {}

  /** The parts that a member has been found to take, by a connection. Undefined: none. */
  takes(sandboxId: string): readonly LatePart[] | undefined {
    return this.proven.get(sandboxId);
  }

  forget(sandboxId: string): void {
    this.proven.delete(sandboxId);
  }

  /** Connects to a member that has just started. Where no connection opens, it takes nothing. */
  async prove(sandboxId: string): Promise<void> {
    const found = await this.inspect(sandboxId);
    const connection = found && (await this.connect(sandboxId, found));
    if (!connection) return;
    connection.destroy();
    // Process 1 makes a working directory as the user of the sandbox. A start makes it as root, for that user.
    const workdir = ROOT.test(found.Config.User) ? (['workdir'] as const) : [];
    const scripts = found.HostConfig.Tmpfs?.[SCRIPTS_DIRECTORY] === undefined ? [] : (['scripts'] as const);
    this.proven.set(sandboxId, ['command', ...scripts, ...workdir]);
  }

  /** Idempotent for each run. */
  async handOver({ sandboxId, spec }: Run, signal: AbortSignal): Promise<void> {
    const found = await this.inspect(sandboxId);
    if (!found) throw new Error('the engine has no running container of the sandbox');
    // The container was made anew, with everything.
    const { Cmd, Env, Labels } = found.Config;
    if (!takesHandover(Cmd ?? [])) return;
    const entrypoint = (parseJson(Labels[ENTRYPOINT_LABEL] ?? '') ?? []) as string[];
    const message = encodeHandover({
      command: commandOf(spec, { entrypoint }),
      untilExit: spec.endsWithCommand ?? false,
      env: lateEnvironment(spec, Env ?? []),
      workdir: spec.workdir,
      scripts: scriptTexts(spec),
    });
    const connection = await this.connect(sandboxId, found);
    if (!connection) throw new Error('process 1 of the sandbox cannot be reached');
    await handOver(connection, message, signal);
  }

  private async inspect(sandboxId: string): Promise<Docker.ContainerInspectInfo | undefined> {
    const found = await findContainer(this.parts, sandboxId);
    const inspected = found && (await this.parts.docker.getContainer(found.Id).inspect());
    return inspected?.State.Running ? inspected : undefined;
  }

  private async connect(
    sandboxId: string,
    { Id, State }: Docker.ContainerInspectInfo,
  ): Promise<Socket | undefined> {
    const process1 = { containerId: Id, pid: State.Pid };
    for (let left = ATTEMPTS; left > 0; left -= 1) {
      const connection = await this.ports.connectProcess(sandboxId, process1, 'handover');
      if (connection) return connection;
      await sleep(PAUSE_MS);
    }
    return undefined;
  }
}
