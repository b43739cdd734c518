import pg from 'pg';
import { readServerState, type ServerState } from './server-state.js';

/** Ticks without an answer after which a server counts as silent. Ticks, because a paused process has none. */
const SILENT_TICKS = 10;

interface Watching {
  /** A client that is aimed at the server and has not connected. */
  make(): pg.Client;
  onState(state: ServerState): void;
  /** Nothing came back for all the ticks, neither an answer nor a refusal. */
  onSilence(): void;
}

/** Asks one server about itself at each tick, on a connection of its own. */
export class ServerWatch {
  private client: pg.Client | undefined;
  private asking = false;
  private silentTicks = 0;
  private closed = false;

  constructor(private readonly watching: Watching) {}

  tick(): void {
    if (!this.asking) {
      this.asking = true;
      void this.ask().finally(() => (this.asking = false));
      return;
    }
    this.silentTicks += 1;
    if (this.silentTicks < SILENT_TICKS) return;
    this.silentTicks = 0;
    this.drop();
    this.watching.onSilence();
  }

  close(): void {
    this.closed = true;
    this.drop();
  }

  private async ask(): Promise<void> {
    try {
      const state = await readServerState(await this.connected());
      this.silentTicks = 0;
      if (!this.closed) this.watching.onState(state);
    } catch (error) {
      this.drop();
      const refused =
        error instanceof pg.DatabaseError || (error as { code?: string }).code === 'ECONNREFUSED';
      if (refused) this.silentTicks = 0;
    }
  }

  private async connected(): Promise<pg.Client> {
    if (this.client) return this.client;
    const client = this.watching.make();
    this.client = client;
    client.on('end', () => {
      if (this.client === client) this.client = undefined;
    });
    await client.connect();
    // A command ends although the watch goes on.
    (client as pg.Client & { unref(): void }).unref();
    return client;
  }

  private drop(): void {
    const { client } = this;
    this.client = undefined;
    client?.connection.stream.destroy();
  }
}
