import { setTimeout as pause } from 'node:timers/promises';
import type { Client } from './client.js';
import { specOf } from './usual-work.js';

/** One organization at its worst. */
export class Attacker {
  /** The number of requests, of answers of each status, and of errors of connections. */
  readonly answers: Record<string, number> = {};

  constructor(
    readonly client: Client,
    /** Undefined: the runtime is simulated. */
    readonly image: string | undefined,
    /** Aborts when the measurement ends. */
    readonly signal: AbortSignal,
    /** Tells that the attack is prepared and begins. */
    readonly begin: () => void,
  ) {}

  note(answer: string | number): void {
    this.answers[answer] = (this.answers[answer] ?? 0) + 1;
  }

  /** Repeats a request on so many connections until the end. */
  async flood(
    connections: number,
    work: (index: number) => Promise<{ status: number } | void>,
  ): Promise<void> {
    const one = async (_: unknown, index: number) => {
      while (!this.signal.aborted) {
        this.note('asked');
        try {
          const answer = await work(index);
          this.note(answer?.status ?? 'done');
          // A refused client that does not wait at all would measure its own speed.
          if (answer && answer.status >= 400) await pause(10);
        } catch (error) {
          if (this.signal.aborted) return;
          this.note((error as NodeJS.ErrnoException).code ?? (error as Error).message.slice(0, 60));
          await pause(20);
        }
      }
    };
    await Promise.all(Array.from({ length: connections }, one));
  }

  call(method: string, path: string, body?: object): Promise<{ status: number; text: string }> {
    return this.client.call(method, path, {
      signal: this.signal,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  }

  async create(cmd: string[], more: object = {}): Promise<string> {
    const path = '/v1/sandboxes?start=true&wait_for=running&wait_timeout=60';
    const { id } = await this.client.json<{ id: string }>('POST', path, {
      ...specOf(this.image, cmd),
      ...more,
    });
    return id;
  }

  /** Resolves at the end of the measurement. */
  async untilTheEnd(): Promise<void> {
    while (!this.signal.aborted) await pause(50);
  }
}

export interface Attack {
  /** In a row of the table. */
  text: string;
  /** The attack needs commands that really run. */
  containers?: true;
  run(attacker: Attacker): Promise<void>;
}
