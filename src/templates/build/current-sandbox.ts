import type { BuildEnvironment } from './environment.js';
import { removeBuildSandbox, startBuildSandbox, type RunningSandbox, type Start } from './sandbox.js';

/** At most one sandbox of a build runs. */
export class CurrentSandbox {
  private current: { running: RunningSandbox; begin: string } | undefined;

  constructor(private readonly env: BuildEnvironment) {}

  /** The running sandbox if it began like this, or else a new one. No step has changed its disk. */
  async get(start: Start): Promise<RunningSandbox> {
    const begin = JSON.stringify(start);
    if (this.current && this.current.begin !== begin) await this.remove();
    this.current ??= { running: await startBuildSandbox(this.env, start), begin };
    return this.current.running;
  }

  async remove(): Promise<void> {
    const { current } = this;
    this.current = undefined;
    if (!current) return;
    current.running.leave();
    await removeBuildSandbox(this.env, current.running.id);
  }
}
