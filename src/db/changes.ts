import { startLoop, type Loop } from '../lib/loop.js';
import { connectionConfig, makeClient, type Address } from './pool.js';
import { notify, type WriteTarget } from './write-batch.js';

/**
 * The subjects of notifications: a changed sandbox, a longer event log of an organization, a changed API key. `session`
 * is an ended session of the console, `visit` a session in a sandbox that is to end. `preview` is the sandbox of a
 * preview that has ended, or an organization whose previews may have; empty: those of any. `call` is a call of a tool
 * that its client has cancelled. `snapshot` is one that waits for its capture. `template` is one
 * whose build waits, went on or ended.
 */
const CHANNELS = {
  sandbox: 'sandkeep_sandboxes',
  log: 'sandkeep_event_log',
  key: 'sandkeep_keys',
  session: 'sandkeep_console_sessions',
  visit: 'sandkeep_sandbox_sessions',
  preview: 'sandkeep_previews',
  call: 'sandkeep_mcp_calls',
  snapshot: 'sandkeep_snapshots',
  template: 'sandkeep_templates',
} as const;
export type Channel = keyof typeof CHANNELS;
const RECONNECT_MS = 500;

/** Notifications of committed changes. They get lost while the connection is down, so subscribers poll too. */
export interface Changes {
  /**
   * Calls `listener` at each change of this sandbox, organization (`log`) or key; undefined: of any. Returns the
   * unsubscriber. `changed`: undefined after a loss of the connection, when anything may have changed.
   */
  subscribe(
    id: string | undefined,
    listener: (changed: string | undefined) => void,
    channel?: Channel,
  ): () => void;
  /** Whether notifications arrive. Caches that depend on them are off while it is false. */
  readonly live: boolean;
  close(): Promise<void>;
}

/** PostgreSQL delivers the notification at the commit. */
export async function announceChange(tx: WriteTarget, sandboxId: string): Promise<void> {
  await notify(tx, CHANNELS.sandbox, [sandboxId]);
}

export async function announceChanges(tx: WriteTarget, sandboxIds: readonly string[]): Promise<void> {
  await notify(tx, CHANNELS.sandbox, sandboxIds);
}

export async function announceSnapshot(tx: WriteTarget, snapshotId: string): Promise<void> {
  await notify(tx, CHANNELS.snapshot, [snapshotId]);
}

export async function announceTemplate(tx: WriteTarget, templateId: string): Promise<void> {
  await notify(tx, CHANNELS.template, [templateId]);
}

export async function announceLog(tx: WriteTarget, orgId: string): Promise<void> {
  await notify(tx, CHANNELS.log, [orgId]);
}

export async function announceEndedSession(tx: WriteTarget, sessionId: string): Promise<void> {
  await notify(tx, CHANNELS.visit, [sessionId]);
}

export async function announceCancelledCall(tx: WriteTarget, call: string): Promise<void> {
  await notify(tx, CHANNELS.call, [call]);
}

export function listenForChanges(address: Address, onError: (error: unknown) => void): Changes {
  const ANY = '*';
  const listeners = new Map<string, Set<(changed: string | undefined) => void>>();
  const tell = (key: string, changed?: string) =>
    listeners.get(key)?.forEach((listener) => listener(changed));

  let live = false;

  const loop: Loop = startLoop(
    async (signal) => {
      const client = makeClient({ ...connectionConfig(address), keepAlive: true });
      let stop: () => void = () => undefined;
      const ended = new Promise<void>((resolve, reject) => {
        const over = (settle: () => void) => {
          live = false;
          settle();
        };
        client.on('error', (error) => over(() => reject(error)));
        client.on('end', () => over(resolve));
        stop = () => over(resolve);
      });
      signal.addEventListener('abort', stop, { once: true });
      try {
        await client.connect();
        client.on('notification', ({ channel, payload }) => {
          tell(`${channel} ${payload ?? ''}`, payload);
          tell(`${channel} ${ANY}`, payload);
        });
        for (const channel of Object.values(CHANNELS)) await client.query(`listen ${channel}`);
        live = true;
        // Changes before `listen` had no notification.
        for (const key of listeners.keys()) tell(key);
        await ended;
      } finally {
        signal.removeEventListener('abort', stop);
        ended.catch(() => undefined);
        await client.end().catch(() => undefined);
      }
    },
    { intervalMs: RECONNECT_MS, maxBackoffMs: 5_000, onError },
  );

  return {
    subscribe(id, listener, channel = 'sandbox') {
      const key = `${CHANNELS[channel]} ${id ?? ANY}`;
      const set = listeners.get(key) ?? new Set();
      listeners.set(key, set.add(listener));
      return () => {
        set.delete(listener);
        if (set.size === 0 && listeners.get(key) === set) listeners.delete(key);
      };
    },
    get live() {
      return live;
    },
    close: () => loop.stop(),
  };
}
