import type { GatedSecret } from '../protocol.js';
import { standingOf, type Recipient } from './allowed-hosts.js';
import {
  Effort,
  EncodedTexts,
  inFormOf,
  latin1Of,
  replaceFound,
  SearchEffortError,
  type Found,
} from './encoded-texts.js';

export interface RequestHead {
  method: string;
  /** With its query. */
  path: string;
  /** In latin1, a character for each byte, as the parser of requests gives them. */
  headers: readonly (readonly [string, string])[];
}

export interface Substituted<T> {
  value: T;
  /** The names of the secrets whose values it has. */
  used: string[];
}

/** The first secret whose placeholder must not go to this server, or not in this way. */
export class Violation {
  constructor(
    readonly secret: GatedSecret,
    /** For people. */
    readonly reason: string,
  ) {}
}

/** A whole body that is rewritten is in memory, so it is bounded. */
export const LARGEST_BODY = 16 * 1024 ** 2;

/** One placeholder of a letter in a large body would else become a body of gigabytes. */
const MOST_GROWTH = 256 * 1024;

/** The credentials that were sent, and those that the guest wrote: an echo of the first becomes the second. */
export type SentCredentials = Map<string, string>;

/** By the list of all secrets of a sandbox, in their order. */
const placeholders = new WeakMap<readonly GatedSecret[], EncodedTexts>();

/** Puts the values of secrets in place of their placeholders, in requests to one server. */
export class Substitution {
  readonly credentials: SentCredentials = new Map();
  /** The secrets whose values this server may have, so that its answers may repeat them. */
  readonly shared: readonly GatedSecret[];
  private readonly texts: EncodedTexts;
  /** All searches of a request share it: a head of many fields begins no search anew. */
  private readonly effort = new Effort();
  private readonly allowed: ReadonlySet<GatedSecret>;
  /** With the reason, for people. */
  private readonly forbidden = new Map<GatedSecret, string>();

  constructor(
    private readonly secrets: readonly GatedSecret[],
    recipient: Recipient,
  ) {
    this.texts = placeholders.get(secrets) ?? new EncodedTexts(secrets.map(({ placeholder }) => placeholder));
    placeholders.set(secrets, this.texts);
    this.shared = secrets.filter((secret) => standingOf(secret, recipient) === 'allowed');
    this.allowed = new Set(this.shared);
    for (const secret of secrets) {
      const standing = standingOf(secret, recipient);
      if (standing === 'foreign') this.forbidden.set(secret, `${recipient.name} may not have it`);
      if (standing === 'unverified') {
        const proof = secret.requireTlsIdentity
          ? 'by a verified certificate'
          : 'by a certificate or an address';
        this.forbidden.set(secret, `${recipient.name} has not proved its name ${proof}`);
      }
    }
  }

  /** Nothing of this server's requests and answers has to be looked at. */
  get isIdle(): boolean {
    return this.allowed.size === 0 && this.forbidden.size === 0;
  }

  /** Some value goes into bodies, so a body is needed whole before the head of its request is sent. */
  get rewritesBodies(): boolean {
    return this.shared.some(({ places }) => places.body);
  }

  head(head: RequestHead): Substituted<{ path: string; headers: [string, string][] }> | Violation {
    return this.guarded(() => {
      const { path, headers } = head;
      const used = new Set<string>();
      this.refuseIn(path);
      for (const [name, value] of headers) this.refuseInHeader(name, value);
      const newPath = this.query(path, used);
      const newHeaders = headers.map(([name, value]): [string, string] => [
        name,
        this.header(name, value, used),
      ]);
      return { value: { path: newPath, headers: newHeaders }, used: [...used] };
    });
  }

  body(body: Buffer, contentType = ''): Substituted<Buffer> | Violation {
    return this.guarded(() => {
      const used = new Set<string>();
      const replaced = this.replace(
        body.toString('latin1'),
        ({ places }) => places.body,
        ({ name, value }, written) => {
          used.add(name);
          return inBody(contentType, written, value);
        },
      );
      return { value: used.size === 0 ? body : Buffer.from(replaced, 'latin1'), used: [...used] };
    });
  }

  /**
   * Looks through a body in pieces, and keeps only the end that may be the beginning of a placeholder. `everySecret`:
   * also those that a whole body would get, for protocols whose bodies are not rewritten.
   */
  scanner({ everySecret = false } = {}): (piece: Buffer) => Violation | undefined {
    const isWanted = (secret: GatedSecret) =>
      this.forbidden.has(secret) || (everySecret && this.allowed.has(secret) && secret.places.body);
    if (!this.secrets.some(isWanted)) return () => undefined;
    const effort = new Effort();
    let rest = '';
    return (piece) => {
      const text = rest + piece.toString('latin1');
      effort.grant(piece.length);
      const violation = this.guarded(() => {
        const { found, unfinished } = this.texts.search(text, {
          effort,
          accepts: (position) => isWanted(this.secrets[position]!),
        });
        rest = text.slice(unfinished);
        const [first] = found;
        if (!first) return undefined;
        const secret = this.secrets[first.text]!;
        const reason = this.forbidden.get(secret) ?? 'a body of HTTP/2 is not rewritten: use HTTP/1.1';
        return new Violation(secret, reason);
      });
      return violation;
    };
  }

  /** Calls `act`, which throws violations. */
  private guarded<T>(act: () => T): T | Violation {
    try {
      return act();
    } catch (error) {
      if (error instanceof Violation) return error;
      if (!(error instanceof SearchEffortError)) throw error;
      const reason =
        'the request repeats itself so often that its placeholders cannot be found: send it in another form';
      return new Violation(
        this.secrets.find((secret) => this.isKnown(secret))!,
        reason,
      );
    }
  }

  private isKnown(secret: GatedSecret): boolean {
    return this.allowed.has(secret) || this.forbidden.has(secret);
  }

  private search(text: string): Found[] {
    const accepts = (position: number) => this.isKnown(this.secrets[position]!);
    this.effort.grant(text.length);
    return this.texts.search(text, { accepts, effort: this.effort }).found;
  }

  /** Throws the violation. */
  private refuseIn(text: string): void {
    this.refuseFound(this.search(text));
  }

  private refuseFound(found: readonly Found[]): void {
    for (const { text } of found) {
      const secret = this.secrets[text]!;
      const reason = this.forbidden.get(secret);
      if (reason !== undefined) throw new Violation(secret, reason);
    }
  }

  private refuseInHeader(name: string, value: string): void {
    this.refuseIn(name);
    this.refuseIn(value);
    this.refuseIn(credentialsIn(name, value)?.decoded ?? '');
  }

  private replace(
    text: string,
    isPlace: (secret: GatedSecret) => boolean,
    replacement: (secret: GatedSecret, written: string) => string,
  ): string {
    const found = this.search(text);
    this.refuseFound(found);
    const known = new Map<string, string>();
    let grown = 0;
    return replaceFound(text, found, (position, written) => {
      const secret = this.secrets[position]!;
      if (!isPlace(secret)) return written;
      const key = `${position} ${written}`;
      const value = known.get(key) ?? replacement(secret, written);
      known.set(key, value);
      grown += value.length - written.length;
      if (grown > MOST_GROWTH)
        throw new Violation(
          secret,
          'its placeholder is there so often that the values would make it too long',
        );
      return value;
    });
  }

  private query(path: string, used: Set<string>): string {
    const start = path.indexOf('?');
    if (start === -1) return path;
    const query = this.replace(
      path.slice(start),
      ({ places }) => places.query,
      ({ name, value }) => {
        used.add(name);
        return encodeURIComponent(value);
      },
    );
    return path.slice(0, start) + query;
  }

  private header(name: string, value: string, used: Set<string>): string {
    const credentials = credentialsIn(name, value);
    const given = credentials?.decoded ?? value;
    const field = name.toLowerCase();
    const text = this.replace(
      given,
      ({ places: { headers, basicAuth, headerFields } }) =>
        (headerFields.length === 0 || headerFields.includes(field)) && (credentials ? basicAuth : headers),
      (secret) => {
        // A line break would end the header, and begin another that the caller chose.
        if (/[\r\n\0]/.test(secret.value))
          throw new Violation(secret, 'its value has a line break, which no header can have');
        used.add(secret.name);
        return latin1Of(secret.value);
      },
    );
    if (!credentials || text === given) return credentials ? value : text;
    const encoded = Buffer.from(text, 'latin1').toString('base64');
    this.credentials.set(encoded, credentials.encoded);
    return `${credentials.scheme}${encoded}`;
  }
}

const WITH_CREDENTIALS = new Set(['authorization', 'proxy-authorization']);

/** The name and password of Basic credentials, in latin1. */
function credentialsIn(
  name: string,
  value: string,
): { scheme: string; encoded: string; decoded: string } | undefined {
  if (!WITH_CREDENTIALS.has(name.toLowerCase())) return undefined;
  const [, scheme, encoded] = /^(\s*basic\s+)([A-Za-z0-9+/_=-]+)\s*$/i.exec(value) ?? [];
  if (scheme === undefined || encoded === undefined) return undefined;
  return { scheme, encoded, decoded: Buffer.from(encoded, 'base64').toString('latin1') };
}

function inBody(contentType: string, found: string, value: string): string {
  if (/^application\/x-www-form-urlencoded/i.test(contentType)) return encodeURIComponent(value);
  if (/^(application|text)\/([a-z0-9.+-]+\+)?json/i.test(contentType))
    return latin1Of(JSON.stringify(value).slice(1, -1));
  return inFormOf(found, value);
}
