import type { Buffer } from 'node:buffer';
import type { Connection, ConnectionListener, Guest } from './guest.js';
import { NameError, resolveHost } from './resolve.js';

const TIMEOUT_MS = 30_000;

/** A connection to a host by name or address. Tries the addresses one after another. */
export class HostConnection implements Connection {
  private readonly attempts = new AbortController();
  /** Resolves when the attempts are over. */
  private readonly settled: Promise<void>;
  private current: Connection | undefined;
  private isConnected = false;
  private isOver = false;

  constructor(
    private readonly guest: Guest,
    host: string,
    private readonly port: number,
    private readonly listener: ConnectionListener,
  ) {
    this.settled = this.open(host);
  }

  async write(data: Buffer): Promise<void> {
    await this.settled;
    await this.current?.write(data);
  }

  end(): void {
    void this.settled.then(() => this.current?.end());
  }

  grant(bytes: number): void {
    this.current?.grant(bytes);
  }

  close(): void {
    if (this.isConnected) this.current?.close();
    else this.finish(null);
  }

  private async open(host: string): Promise<void> {
    const { signal } = this.attempts;
    const timer = setTimeout(() => this.finish('Connection timed out'), TIMEOUT_MS).unref();
    const aborted = new Promise<void>((resolve) =>
      signal.addEventListener('abort', () => resolve(), { once: true }),
    );
    await Promise.race([aborted, this.attempt(host, signal)]);
    clearTimeout(timer);
  }

  private async attempt(host: string, signal: AbortSignal): Promise<void> {
    try {
      let firstFailure: string | null = null;
      for (const address of await resolveHost(this.guest, host, signal)) {
        if (this.isOver) return;
        const failure = await this.tryAddress(address);
        if (this.isConnected) return;
        firstFailure ??= failure;
      }
      this.finish(firstFailure);
    } catch (error) {
      this.finish(error instanceof NameError ? error.message : 'the sandbox has stopped');
    }
  }

  /** Resolves when the connection is open or has failed. */
  private tryAddress(address: string): Promise<string | null> {
    return new Promise((resolve) => {
      this.current = this.guest.connect(address, this.port, {
        connected: () => {
          if (this.isOver) return;
          this.isConnected = true;
          this.listener.connected();
          resolve(null);
        },
        data: (data) => this.listener.data(data),
        ended: () => this.listener.ended(),
        closed: (failure) => {
          if (this.isConnected) this.finish(failure);
          resolve(failure);
        },
      });
    });
  }

  private finish(failure: string | null): void {
    if (this.isOver) return;
    this.isOver = true;
    this.attempts.abort();
    if (!this.isConnected) this.current?.close();
    this.listener.closed(failure);
  }
}
