import { statSync } from 'node:fs';
import { readKeyPair, type KeyPair, type KeyPairFiles } from './key-pair.js';

/** A renewed pair is served after two looks. */
const LOOK_EVERY_MS = 5_000;
export const SOON_DAYS = 14;
const DAY_MS = 24 * 60 * 60_000;

interface Log {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** The certificate of the service. Its files are read again when they have changed. */
export class Certificate {
  private current: KeyPair;
  private tried: string;
  private seen: string;
  private refused = false;
  private timer: NodeJS.Timeout | undefined;
  private readonly listeners: ((pair: KeyPair) => void)[] = [];

  /** Throws ExplainedError for files that cannot be served. */
  constructor(
    private readonly files: KeyPairFiles,
    private readonly log: Log,
  ) {
    this.tried = this.seen = this.version();
    this.current = readKeyPair(files);
    this.warnIfOld();
  }

  get pair(): KeyPair {
    return this.current;
  }

  /** The files have a pair that cannot be served; the previous one is served still. */
  get isRefused(): boolean {
    return this.refused;
  }

  onRenewal(listener: (pair: KeyPair) => void): void {
    this.listeners.push(listener);
  }

  watch(everyMs = LOOK_EVERY_MS): void {
    this.timer = setInterval(() => this.look(), everyMs).unref();
  }

  close(): void {
    clearInterval(this.timer);
  }

  /** Both files change one after the other, so a change counts when the next look finds nothing newer. */
  private look(): void {
    const version = this.version();
    const isSettled = version === this.seen;
    this.seen = version;
    if (isSettled && version !== this.tried) this.reload();
  }

  /** Reads the files now. A pair that cannot be served changes nothing. */
  reload(): void {
    this.tried = this.version();
    try {
      const pair = readKeyPair(this.files);
      const isOld = pair.expiresAt <= Date.now() && pair.expiresAt < this.current.expiresAt;
      if (isOld) throw new Error(`the certificate in ${this.files.cert} has expired: renew it`);
      this.refused = false;
      if (pair.cert === this.current.cert && pair.key === this.current.key) return;
      this.current = pair;
      for (const listener of this.listeners) listener(pair);
      const { names, expiresAt } = pair;
      this.log.info(
        { names, expiresAt: new Date(expiresAt).toISOString() },
        'the TLS certificate was renewed',
      );
      this.warnIfOld();
    } catch (error) {
      this.refused = true;
      const { message: reason } = error as Error;
      this.log.error({ reason }, 'the new TLS certificate is refused; the previous one is served still');
    }
  }

  private warnIfOld(): void {
    const days = daysLeft(this.current);
    if (days > SOON_DAYS) return;
    this.log.warn(
      { days, file: this.files.cert },
      'the TLS certificate has expired or expires soon: renew it',
    );
  }

  private version(): string {
    return [this.files.cert, this.files.key].map(versionOf).join(' ');
  }
}

/** Below zero after its end. */
export function daysLeft({ expiresAt }: Pick<KeyPair, 'expiresAt'>): number {
  return Math.floor((expiresAt - Date.now()) / DAY_MS);
}

function versionOf(file: string): string {
  const found = statSync(file, { throwIfNoEntry: false });
  return found ? [found.ino, found.mtimeMs, found.ctimeMs, found.size].join(':') : 'none';
}
