import { Transform, type TransformCallback } from 'node:stream';
import type { GatedSecret } from '../protocol.js';
import { Effort, EncodedTexts, inFormOf, replaceFound, SearchEffortError } from './encoded-texts.js';
import type { SentCredentials } from './substitute.js';

/** A shorter value occurs in texts by chance. */
const SHORTEST = 4;

const BINARY =
  /^((image|audio|video|font|model)\/(?!svg)|application\/(octet-stream|pdf|wasm|grpc|zip|gzip|zstd|x-(gzip|tar|xz|bzip2|7z|rpm|debian|java|git)|java-archive|vnd\.))(?!.*\+(json|xml|text))/i;

/** Measures the work on an answer. `rest` ends when the next piece may be read. */
interface Meter {
  timed<T>(work: () => T): T;
  rest(): Promise<void> | undefined;
}

const UNMETERED: Meter = { timed: (work) => work(), rest: () => undefined };

interface Values {
  secrets: readonly GatedSecret[];
  texts: EncodedTexts;
}

/** Each request has a list of its own, but they are equal for one server. By the first secret. */
const known = new WeakMap<GatedSecret, Values>();

/** Puts the placeholder in place of the value in answers of a server that has the value. */
export class Echoes {
  private readonly values: Values | undefined;

  /** `credentials`: what was sent in this connection so far. Later ones count too. */
  constructor(
    secrets: readonly GatedSecret[],
    private readonly credentials: SentCredentials,
  ) {
    this.values = valuesOf(secrets.filter(({ value }) => Buffer.byteLength(value) >= SHORTEST));
  }

  get isIdle(): boolean {
    return this.values === undefined;
  }

  /** A header or a whole text, in latin1. Empty, where the search takes too long: the text could have the value. */
  replace(latin1: string): string {
    const effort = new Effort();
    effort.grant(latin1.length);
    try {
      return this.replaceIn(latin1, effort, true).decided;
    } catch (error) {
      if (error instanceof SearchEffortError) return '';
      throw error;
    }
  }

  /** Also bodies of no or an unknown type, such as `message/http`. A change would break those of known binary types. */
  static reads(contentType = ''): boolean {
    return !BINARY.test(contentType);
  }

  /**
   * Keeps back only an end that may be the beginning of a value, so that live streams stay live. `refuse`: the body
   * ends with an error.
   */
  transform(mode: 'replace' | 'refuse' = 'replace', meter = UNMETERED): Transform {
    if (mode === 'refuse')
      return new Transform({ transform: (_piece, _encoding, done) => done(new Error('a part of a text')) });
    const effort = new Effort();
    let rest = '';
    const take = (piece: string, isLast: boolean, done: TransformCallback) => {
      effort.grant(piece.length);
      try {
        const replaced = meter.timed(() => this.replaceIn(rest + piece, effort, isLast));
        rest = replaced.rest;
        const decided = Buffer.from(replaced.decided, 'latin1');
        const proceed = () => done(null, decided);
        void (meter.rest()?.then(proceed, proceed) ?? proceed());
      } catch (error) {
        // The rest of the answer is lost, because it could have the value.
        done(error as Error);
      }
    };
    return new Transform({
      transform: (piece: Buffer, _encoding, done) => take(piece.toString('latin1'), false, done),
      flush: (done) => take('', true, done),
    });
  }

  /** `rest`: the end of the text that further bytes may complete. */
  private replaceIn(latin1: string, effort: Effort, isLast: boolean): { decided: string; rest: string } {
    if (!this.values) return { decided: latin1, rest: '' };
    const { texts, secrets } = this.values;
    let text = latin1;
    for (const [sent, written] of this.credentials) text = text.replaceAll(sent, written);
    const { found, unfinished } = texts.search(text, { effort });
    const overlaps = [...this.credentials.keys()].map((sent) => text.length - overlapOf(text, sent));
    let end = isLast ? text.length : Math.min(unfinished, ...overlaps);
    // An occurrence that ends behind it waits too.
    for (const { start, end: last } of found) if (start < end && end < last) end = start;
    const decided = replaceFound(
      text.slice(0, end),
      found.filter(({ end: last }) => last <= end),
      (position, written) => inFormOf(written, secrets[position]!.placeholder),
    );
    return { decided, rest: text.slice(end) };
  }
}

function valuesOf(secrets: readonly GatedSecret[]): Values | undefined {
  const [first] = secrets;
  if (!first) return undefined;
  const previous = known.get(first);
  const isEqual =
    previous?.secrets.length === secrets.length &&
    previous.secrets.every((secret, position) => secret === secrets[position]);
  if (previous && isEqual) return previous;
  const values = { secrets, texts: new EncodedTexts(secrets.map(({ value }) => value)) };
  known.set(first, values);
  return values;
}

/** The length of the longest end of `text` with which `sent` begins. */
function overlapOf(text: string, sent: string): number {
  const end = text.slice(Math.max(0, text.length - sent.length + 1));
  // By Knuth, Morris and Pratt, in time of both lengths: servers and guests choose the texts. Base64 has no zero.
  const whole = `${sent}\0${end}`;
  const borders = new Uint32Array(whole.length);
  for (let at = 1, border = 0; at < whole.length; at += 1) {
    while (border > 0 && whole.charCodeAt(at) !== whole.charCodeAt(border)) border = borders[border - 1]!;
    if (whole.charCodeAt(at) === whole.charCodeAt(border)) border += 1;
    borders[at] = border;
  }
  return end === '' ? 0 : borders[whole.length - 1]!;
}
