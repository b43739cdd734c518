import { AgentPool } from '../../guest/agent-pool.js';
import type { Guest } from '../../guest/guest.js';
import { connectAgent } from './agent-session.js';
import type { HeldSandbox } from './holdings.js';
import { withDirectory } from './supervisor.js';

/** The agents in virtual machines. Each is reached by the port `agent` of its machine. */
export class MicrovmGuests {
  private readonly running = new Map<string, HeldSandbox>();
  private readonly pool = new AgentPool(async (runId) => this.connect(runId));

  async open(held: HeldSandbox): Promise<{ guest: Guest; release: () => void }> {
    const runId = held.run?.runId ?? held.identity.firstRunId;
    this.running.set(runId, held);
    return this.pool.open(runId);
  }

  /** Forgets the runs that are not among these. */
  keep(runIds: ReadonlySet<string>): void {
    for (const runId of this.running.keys()) if (!runIds.has(runId)) this.running.delete(runId);
  }

  close(): void {
    this.pool.close();
  }

  private async connect(runId: string) {
    const held = this.running.get(runId);
    if (!held) throw new Error(`the run ${runId} has ended`);
    const { places, run } = held;
    const defaults: { env: readonly string[]; cwd: string } = { env: [], cwd: run?.workdir ?? '/' };
    const agent = await withDirectory(places.run, async (short) =>
      connectAgent(`${short}/agent.sock`, defaults),
    );
    // Process 1 has started it with the environment of the sandbox.
    defaults.env = agent.environment;
    return agent;
  }
}
