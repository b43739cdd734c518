import { Transform } from 'node:stream';
import type { GatedSecret } from '../protocol.js';
import { EncodedText, inFormOf } from './encoded-text.js';
import type { SentCredentials } from './substitute.js';

/** A shorter value occurs in texts by chance. */
const SHORTEST = 4;

/** Puts the placeholder in place of the value in answers of a server that has the value. */
export class Echoes {
  private readonly texts: { text: EncodedText; placeholder: string }[];

  /** `credentials`: what was sent in this connection so far. Later ones count too. */
  constructor(
    secrets: readonly GatedSecret[],
    private readonly credentials: SentCredentials,
  ) {
    this.texts = secrets
      .filter(({ value }) => Buffer.byteLength(value) >= SHORTEST)
      .map(({ value, placeholder }) => ({ text: new EncodedText(value), placeholder }));
  }

  get isIdle(): boolean {
    return this.texts.length === 0;
  }

  /** A header or a whole text, in latin1. */
  replace(latin1: string): string {
    return this.forms().reduce((text, replace) => replace(text), latin1);
  }

  /** Bodies of text and JSON are looked through. A change would break others, such as archives. */
  static reads(contentType = ''): boolean {
    return /^(text\/|application\/([a-z0-9.+-]+\+)?(json|xml|x-ndjson|javascript|x-www-form-urlencoded))/i.test(
      contentType,
    );
  }

  /** Keeps back only an end that may be the beginning of a value, so that live streams stay live. */
  transform(): Transform {
    let rest = '';
    return new Transform({
      transform: (piece: Buffer, _encoding, done) => {
        const text = this.replace(rest + piece.toString('latin1'));
        const cut = this.unfinishedIn(text);
        rest = text.slice(cut);
        done(null, Buffer.from(text.slice(0, cut), 'latin1'));
      },
      flush: (done) => done(null, Buffer.from(this.replace(rest), 'latin1')),
    });
  }

  private unfinishedIn(text: string): number {
    const ends = [...this.credentials.keys()].map((sent) => text.length - overlapOf(text, sent));
    return Math.min(text.length, ...ends, ...this.texts.map(({ text: value }) => value.unfinishedIn(text)));
  }

  private forms(): ((text: string) => string)[] {
    return [
      ...[...this.credentials].map(
        ([sent, written]) =>
          (text: string) =>
            text.replaceAll(sent, written),
      ),
      ...this.texts.map(
        ({ text: value, placeholder }) =>
          (text: string) =>
            value.replaceIn(text, (found) => inFormOf(found, placeholder)),
      ),
    ];
  }
}

/** The length of the longest end of `text` with which `sent` begins. */
function overlapOf(text: string, sent: string): number {
  for (let length = Math.min(sent.length - 1, text.length); length > 0; length--) {
    if (text.endsWith(sent.slice(0, length))) return length;
  }
  return 0;
}
