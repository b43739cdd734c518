import type { Flow } from './protocol.js';

/** A sandbox that connects to more in one interval has the others in one common entry. */
const MOST_OF_SANDBOX = 256;
/** The common entry: no destination has this address. */
const OTHERS = { address: '*', port: 0 } as const;

export type Destination = Pick<Flow, 'name' | 'address' | 'port' | 'protocol' | 'rule'>;

/** Counts the traffic of one connection. */
export interface FlowCounter {
  /** From the sandbox to the destination. */
  sent(bytes: number): void;
  received(bytes: number): void;
  /** A secret, by its name, was put into a request. */
  usedSecret(name: string): void;
  /** The connection is over. Later calls do nothing. */
  end(): void;
}

class Entry {
  connections = 0;
  sentBytes = 0;
  receivedBytes = 0;
  firstAt: number;
  lastAt: number;
  readonly secrets = new Set<string>();
  /** Connections that may still count. */
  open = 0;

  constructor(
    readonly destination: Destination,
    now: number,
  ) {
    this.firstAt = now;
    this.lastAt = now;
  }

  get isEmpty(): boolean {
    return (
      this.connections === 0 && this.sentBytes === 0 && this.receivedBytes === 0 && this.secrets.size === 0
    );
  }

  /** The counts since the previous call. */
  take(sandbox: string, now: number): Flow {
    const flow: Flow = {
      sandbox,
      ...this.destination,
      connections: this.connections,
      sentBytes: this.sentBytes,
      receivedBytes: this.receivedBytes,
      firstAt: this.firstAt,
      lastAt: this.lastAt,
      secrets: [...this.secrets],
    };
    this.connections = 0;
    this.sentBytes = 0;
    this.receivedBytes = 0;
    this.secrets.clear();
    this.firstAt = now;
    return flow;
  }
}

/** The traffic of sandboxes by destination, since the previous report. */
export class FlowBook {
  private readonly sandboxes = new Map<string, Map<string, Entry>>();

  constructor(private readonly now: () => number = Date.now) {}

  open(sandbox: string, destination: Destination): FlowCounter {
    const entry = this.entryOf(sandbox, destination);
    let isOpen = true;
    entry.open += 1;
    entry.connections += 1;
    entry.lastAt = this.now();
    return {
      sent: (bytes) => {
        entry.sentBytes += bytes;
        entry.lastAt = this.now();
      },
      received: (bytes) => {
        entry.receivedBytes += bytes;
        entry.lastAt = this.now();
      },
      usedSecret: (name) => void entry.secrets.add(name),
      end: () => {
        if (!isOpen) return;
        isOpen = false;
        entry.open -= 1;
      },
    };
  }

  /** The counts since the previous report, of one sandbox or of all. */
  report(only?: string): Flow[] {
    const flows: Flow[] = [];
    for (const [sandbox, entries] of only === undefined ? this.sandboxes : this.ofOne(only)) {
      for (const [key, entry] of entries) {
        if (!entry.isEmpty) flows.push(entry.take(sandbox, this.now()));
        // A connection that is open keeps its entry, so that its next bytes count once.
        if (entry.open === 0) entries.delete(key);
      }
      if (entries.size === 0) this.sandboxes.delete(sandbox);
    }
    return flows;
  }

  private ofOne(sandbox: string): [string, Map<string, Entry>][] {
    const entries = this.sandboxes.get(sandbox);
    return entries ? [[sandbox, entries]] : [];
  }

  private entryOf(sandbox: string, destination: Destination): Entry {
    const entries = this.sandboxes.get(sandbox) ?? new Map<string, Entry>();
    this.sandboxes.set(sandbox, entries);
    const isKnown = entries.has(keyOf(destination));
    const counted: Destination =
      isKnown || entries.size < MOST_OF_SANDBOX
        ? destination
        : { ...OTHERS, protocol: destination.protocol, rule: destination.rule };
    const key = keyOf(counted);
    const entry = entries.get(key) ?? new Entry(counted, this.now());
    entries.set(key, entry);
    return entry;
  }
}

function keyOf({ name = '', address, port, protocol, rule }: Destination): string {
  return `${protocol} ${address} ${port} ${rule} ${name}`;
}
