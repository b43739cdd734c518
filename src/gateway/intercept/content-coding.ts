import { Transform } from 'node:stream';
import * as zlib from 'node:zlib';

/** Each one multiplies the length: two of gzip make a million bytes of one. */
const MOST_CODINGS = 1;
const FREE_BYTES = 16 * 1024 ** 2;
/** Beyond the free bytes, a text is at most so many times as long as its compressed form. */
const LARGEST_RATIO = 100;

/** In lower case, without those that change nothing. */
export function codingsOf(contentEncoding = ''): string[] {
  const codings = contentEncoding.split(',').map((each) => each.trim().toLowerCase());
  return codings.filter((each) => each !== '' && each !== 'identity');
}

/** The steps from the bytes of the server to the text. Undefined: this Node does not decode it. */
export function decodingOf(codings: readonly string[]): Transform[] | undefined {
  const decoder = codings.length > MOST_CODINGS ? undefined : decoderOf(codings[0]!);
  if (!decoder) return undefined;
  let [received, given] = [0, 0];
  const counted = new Transform({
    transform: (piece: Buffer, _encoding, done) => {
      received += piece.length;
      done(null, piece);
    },
  });
  const bounded = new Transform({
    transform: (piece: Buffer, _encoding, done) => {
      given += piece.length;
      const isBomb = given > Math.max(FREE_BYTES, received * LARGEST_RATIO);
      done(isBomb ? new Error('the text of a compressed answer is too long') : null, piece);
    },
  });
  return [counted, decoder, bounded];
}

function decoderOf(coding: string): Transform | undefined {
  switch (coding) {
    case 'gzip':
    case 'x-gzip':
      return zlib.createGunzip();
    case 'deflate':
      return zlib.createInflate();
    case 'br':
      return zlib.createBrotliDecompress();
    case 'zstd':
      return zstdDecoder();
    default:
      return undefined;
  }
}

/** From Node 22.15 on. */
function zstdDecoder(): Transform | undefined {
  const { createZstdDecompress } = zlib as { createZstdDecompress?: () => Transform };
  return createZstdDecompress?.();
}
