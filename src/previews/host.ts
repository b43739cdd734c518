import type { PreviewHost } from './types.js';

/** 36 to this power is the first above 2 to the power of 128. */
const ID_DIGITS = 25;
const LARGEST_ID = 2n ** 128n - 1n;
const LABEL = /^([1-9]\d{0,4})-([0-9a-z]{25})$/;
const MOST_PORT = 65_535;
/** Each is read again for every request, which costs 3 µs. */
const MOST_KNOWN = 10_000;
const DEFAULT_PORTS = { http: 80, https: 443 } as const;

export type Scheme = keyof typeof DEFAULT_PORTS;

/** Browsers resolve these names to the loopback addresses, and treat their origins as secure without TLS. */
export function isLocalDomain(domain: string): boolean {
  return domain === 'localhost' || domain.endsWith('.localhost');
}

/** The host names of previews: `<port>-<sandbox>.<domain>`. `port`: of their URLs, as clients see it. */
export class PreviewHosts {
  private suffix = '';
  /** The headers that were read before. */
  private readonly known = new Map<string, PreviewHost>();

  constructor(
    readonly domain: string,
    readonly scheme: Scheme,
    /** The port of the URLs; undefined: that of the listener. */
    private publicPort: number | undefined,
  ) {
    if (publicPort !== undefined) this.listensAt(publicPort);
  }

  /** Known when the listener has its port. Until then every host is unknown. */
  listensAt(port: number): void {
    this.publicPort ??= port;
    this.known.clear();
    this.suffix = `.${this.domain}${this.port === DEFAULT_PORTS[this.scheme] ? '' : `:${this.port}`}`;
  }

  get port(): number {
    return this.publicPort ?? DEFAULT_PORTS[this.scheme];
  }

  /** The form of every origin, for people. */
  get pattern(): string {
    return `${this.scheme}://<port>-<sandbox>${this.suffix}`;
  }

  originOf({ port, sandboxId }: { port: number; sandboxId: string }): string {
    return `${this.scheme}://${port}-${shortId(sandboxId)}${this.suffix}`;
  }

  /**
   * Reads a Host header. Undefined: another host. Each preview has one spelling. Other cases, a final dot, another port
   * and leading zeros are other hosts. So servers, browsers and this service cannot disagree about the origin. The
   * refusal of unknown hosts also ends DNS rebinding.
   */
  read(header: string | undefined): PreviewHost | undefined {
    const known = this.known.get(header ?? '');
    if (known) return known;
    if (this.suffix === '' || !header?.endsWith(this.suffix)) return undefined;
    const [, port, digits] = LABEL.exec(header.slice(0, -this.suffix.length)) ?? [];
    if (port === undefined || Number(port) > MOST_PORT) return undefined;
    const sandboxId = longId(digits!);
    if (sandboxId === undefined) return undefined;
    const host = { port: Number(port), sandboxId, origin: `${this.scheme}://${header}` };
    if (this.known.size >= MOST_KNOWN) this.known.clear();
    this.known.set(header, host);
    return host;
  }
}

/** A UUID in base 36. It fits a DNS label beside the port, and holds no hyphen. */
function shortId(uuid: string): string {
  return BigInt(`0x${uuid.replaceAll('-', '')}`)
    .toString(36)
    .padStart(ID_DIGITS, '0');
}

function longId(digits: string): string | undefined {
  let value = 0n;
  for (const digit of digits) value = value * 36n + BigInt(parseInt(digit, 36));
  if (value > LARGEST_ID) return undefined;
  return value
    .toString(16)
    .padStart(32, '0')
    .replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}
