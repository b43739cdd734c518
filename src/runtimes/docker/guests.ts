import type Docker from 'dockerode';
import { GuestAgent } from '../guest/agent.js';
import type { Guest } from '../guest/guest.js';
import { attachedStream } from './engine-stream.js';
import { AGENT_PROGRAM } from './guest-init.js';

/** An agent that nobody has used for so long ends, in milliseconds. */
const IDLE_MS = 60_000;
const SETUID = 'CAP_SETUID';
const ROOT = '0:0';

/** The agents in the running containers of an engine: one for each container, started by an exec of the engine on first use. */
export class DockerGuests {
  private readonly agents = new Map<string, Promise<GuestAgent>>();
  private readonly users = new Map<string, number>();
  private readonly timers = new Map<string, NodeJS.Timeout>();

  constructor(private readonly docker: Docker) {}

  /** The way into a running container, and a function that gives it back. */
  async open(containerId: string): Promise<{ guest: Guest; release: () => void }> {
    clearTimeout(this.timers.get(containerId));
    let agent = this.agents.get(containerId);
    if (!agent) {
      agent = this.start(containerId);
      this.agents.set(containerId, agent);
      const forget = () => {
        if (this.agents.get(containerId) === agent) this.agents.delete(containerId);
      };
      agent.then(({ gone }) => gone.addEventListener('abort', forget, { once: true }), forget);
    }
    const guest = await agent;
    this.users.set(containerId, (this.users.get(containerId) ?? 0) + 1);
    let released = false;
    const release = () => {
      if (released) return;
      released = true;
      const left = this.users.get(containerId)! - 1;
      if (left > 0) this.users.set(containerId, left);
      else {
        this.users.delete(containerId);
        this.timers.set(
          containerId,
          setTimeout(() => this.users.has(containerId) || guest.close(), IDLE_MS).unref(),
        );
      }
    };
    return { guest, release };
  }

  async close(): Promise<void> {
    for (const timer of this.timers.values()) clearTimeout(timer);
    for (const agent of this.agents.values())
      await agent.then((guest) => guest.close()).catch(() => undefined);
  }

  private async start(containerId: string): Promise<GuestAgent> {
    const container = this.docker.getContainer(containerId);
    const { Config, HostConfig } = await container.inspect();
    // Without the capability to change its user, root could not run commands as the user of the sandbox.
    const changesUser = (HostConfig.CapAdd ?? []).some((name: string) => SETUID.endsWith(name.toUpperCase()));
    const exec = await container.exec({
      Cmd: [AGENT_PROGRAM],
      ...(changesUser ? { User: ROOT } : {}),
      WorkingDir: '/',
      AttachStdin: true,
      AttachStdout: true,
      AttachStderr: true,
      Tty: false,
    });
    const connection = await exec.start({ hijack: true, stdin: true });
    const agent = new GuestAgent(attachedStream(connection), {
      env: Config.Env ?? [],
      cwd: Config.WorkingDir || '/',
      user: Config.User,
    });
    await agent.opened();
    return agent;
  }
}
