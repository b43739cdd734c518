import { sleep } from '../lib/sleep.js';
import type { GuestAgent } from './agent.js';
import type { Guest } from './guest.js';

/** An agent that nobody has used for so long ends, in milliseconds. */
const IDLE_MS = 60_000;

/**
 * A container runtime reads /etc/passwd of the sandbox at the start of each command, and waits where that is a pipe.
 */
const LONGEST_START_MS = 20_000;

interface Agent {
  guest: Promise<GuestAgent>;
  users: number;
  idle?: NodeJS.Timeout;
}

/** The agents in the running containers of an engine: one for each container, started on first use. */
export class AgentPool {
  private readonly agents = new Map<string, Agent>();
  private isClosed = false;

  /** `start` resolves when the agent answers. */
  constructor(private readonly start: (containerId: string) => Promise<GuestAgent>) {}

  /** The way into a running container, and a function that gives it back. */
  async open(containerId: string): Promise<{ guest: Guest; release: () => void }> {
    const agent = this.agents.get(containerId) ?? this.add(containerId);
    clearTimeout(agent.idle);
    agent.users += 1;
    let isReleased = false;
    const release = () => {
      if (isReleased) return;
      isReleased = true;
      agent.users -= 1;
      if (agent.users > 0) return;
      agent.idle = setTimeout(
        () => void agent.guest.then((guest) => guest.close()).catch(() => undefined),
        IDLE_MS,
      ).unref();
    };
    try {
      return { guest: await inTime(agent.guest), release };
    } catch (error) {
      // It stays: each start that hangs occupies the engine, which must get no second one of the container.
      release();
      throw error;
    }
  }

  close(): void {
    this.isClosed = true;
    for (const { guest, idle } of this.agents.values()) {
      clearTimeout(idle);
      void guest.then((opened) => opened.close()).catch(() => undefined);
    }
  }

  private add(containerId: string): Agent {
    const agent: Agent = { guest: this.start(containerId), users: 0 };
    this.agents.set(containerId, agent);
    const forget = () => {
      clearTimeout(agent.idle);
      if (this.agents.get(containerId) === agent) this.agents.delete(containerId);
    };
    const onOpened = (guest: GuestAgent): void => {
      const { gone } = guest;
      if (this.isClosed) guest.close();
      if (gone.aborted) forget();
      else gone.addEventListener('abort', forget, { once: true });
    };
    void agent.guest.then(onOpened, forget);
    return agent;
  }
}

async function inTime<Opened>(opening: Promise<Opened>): Promise<Opened> {
  const over = new AbortController();
  const late = sleep(LONGEST_START_MS, over.signal).then(() => {
    throw new Error(`the engine has not answered the start of the agent for ${LONGEST_START_MS / 1_000} s`);
  });
  late.catch(() => undefined);
  try {
    return await Promise.race([opening, late]);
  } finally {
    over.abort();
  }
}
