import type { GatedSecret } from '../protocol.js';
import { standingOf, type Recipient } from './allowed-hosts.js';
import { EncodedText, inFormOf, latin1Of } from './encoded-text.js';

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

/** The credentials that were sent, and those that the guest wrote: an echo of the first becomes the second. */
export type SentCredentials = Map<string, string>;

interface Known {
  secret: GatedSecret;
  text: EncodedText;
}

const texts = new WeakMap<GatedSecret, EncodedText>();

/** Puts the values of secrets in place of their placeholders, in requests to one server. */
export class Substitution {
  readonly credentials: SentCredentials = new Map();
  private readonly allowed: Known[] = [];
  private readonly forbidden: (Known & { reason: string })[] = [];

  constructor(secrets: readonly GatedSecret[], recipient: Recipient) {
    for (const secret of secrets) {
      const known = { secret, text: textOf(secret) };
      const standing = standingOf(secret, recipient);
      if (standing === 'allowed') this.allowed.push(known);
      if (standing === 'foreign')
        this.forbidden.push({ ...known, reason: `${recipient.name} may not have it` });
      if (standing === 'unverified') {
        const reason = `${recipient.name} has not proved its name by a verified certificate`;
        this.forbidden.push({ ...known, reason });
      }
    }
  }

  /** Nothing of this server's requests and answers has to be looked at. */
  get isIdle(): boolean {
    return this.allowed.length === 0 && this.forbidden.length === 0;
  }

  /** Some value goes into bodies, so a body is needed whole before the head of its request is sent. */
  get rewritesBodies(): boolean {
    return this.allowed.some(({ secret }) => secret.places.body);
  }

  /** The secrets whose values this server may have, so that its answers may repeat them. */
  get shared(): GatedSecret[] {
    return this.allowed.map(({ secret }) => secret);
  }

  head({
    path,
    headers,
  }: RequestHead): Substituted<{ path: string; headers: [string, string][] }> | Violation {
    const found =
      this.forbiddenIn(path) ?? firstOf(headers, ([name, value]) => this.forbiddenInHeader(name, value));
    if (found) return found;
    const used = new Set<string>();
    const newPath = this.query(path, used);
    const newHeaders: [string, string][] = [];
    for (const [name, value] of headers) {
      const replaced = this.header(name, value, used);
      if (replaced instanceof Violation) return replaced;
      newHeaders.push([name, replaced]);
    }
    return { value: { path: newPath, headers: newHeaders }, used: [...used] };
  }

  body(body: Buffer, contentType = ''): Substituted<Buffer> | Violation {
    const text = body.toString('latin1');
    const violation = this.forbiddenIn(text);
    if (violation) return violation;
    const used = new Set<string>();
    let replaced = text;
    for (const { secret, text: placeholder } of this.allowed) {
      if (!secret.places.body) continue;
      replaced = placeholder.replaceIn(replaced, (found) => {
        used.add(secret.name);
        return inBody(contentType, found, secret.value);
      });
    }
    return { value: used.size === 0 ? body : Buffer.from(replaced, 'latin1'), used: [...used] };
  }

  /**
   * Looks through a body in pieces, and keeps only as much of it as one placeholder can take. `everySecret`: also those
   * that a whole body would get, for protocols whose bodies are not rewritten.
   */
  scanner({ everySecret = false } = {}): (piece: Buffer) => Violation | undefined {
    const rewritten = this.allowed
      .filter(({ secret }) => everySecret && secret.places.body)
      .map((known) => ({ ...known, reason: 'a body of HTTP/2 is not rewritten: use HTTP/1.1' }));
    const wanted = [...this.forbidden, ...rewritten];
    const keep = Math.max(0, ...wanted.map(({ text }) => text.longest)) - 1;
    let rest = '';
    return (piece) => {
      if (wanted.length === 0) return undefined;
      const text = rest + piece.toString('latin1');
      rest = text.slice(Math.max(0, text.length - keep));
      const found = wanted.find((known) => known.text.isIn(text));
      return found && new Violation(found.secret, found.reason);
    };
  }

  private forbiddenIn(text: string): Violation | undefined {
    const found = this.forbidden.find((known) => known.text.isIn(text));
    return found && new Violation(found.secret, found.reason);
  }

  private forbiddenInHeader(name: string, value: string): Violation | undefined {
    const decoded = credentialsIn(name, value)?.decoded ?? '';
    return this.forbiddenIn(name) ?? this.forbiddenIn(value) ?? this.forbiddenIn(decoded);
  }

  private query(path: string, used: Set<string>): string {
    const start = path.indexOf('?');
    if (start === -1) return path;
    let query = path.slice(start);
    for (const { secret, text } of this.allowed) {
      if (!secret.places.query) continue;
      query = text.replaceIn(query, () => {
        used.add(secret.name);
        return encodeURIComponent(secret.value);
      });
    }
    return path.slice(0, start) + query;
  }

  private header(name: string, value: string, used: Set<string>): string | Violation {
    const credentials = credentialsIn(name, value);
    let text = credentials?.decoded ?? value;
    for (const { secret, text: placeholder } of this.allowed) {
      const { headers, basicAuth, headerFields } = secret.places;
      const isNamed = headerFields.length === 0 || headerFields.includes(name.toLowerCase());
      if (!isNamed || !(credentials ? basicAuth : headers) || !placeholder.isIn(text)) continue;
      // A line break would end the header, and begin another that the caller chose.
      if (/[\r\n\0]/.test(secret.value))
        return new Violation(secret, 'its value has a line break, which no header can have');
      used.add(secret.name);
      text = placeholder.replaceIn(text, () => latin1Of(secret.value));
    }
    if (!credentials || text === credentials.decoded) return credentials ? value : text;
    const encoded = Buffer.from(text, 'latin1').toString('base64');
    this.credentials.set(encoded, credentials.encoded);
    return `${credentials.scheme}${encoded}`;
  }
}

function textOf(secret: GatedSecret): EncodedText {
  let text = texts.get(secret);
  if (!text) texts.set(secret, (text = new EncodedText(secret.placeholder)));
  return text;
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

function firstOf<T, R>(items: readonly T[], look: (item: T) => R | undefined): R | undefined {
  for (const item of items) {
    const found = look(item);
    if (found !== undefined) return found;
  }
  return undefined;
}
