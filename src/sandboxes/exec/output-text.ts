import type { Buffer } from 'node:buffer';
import { StringDecoder } from 'node:string_decoder';
import type { InStep } from './stream.js';

const BYTES_OF_STEP = 64 * 1024;

/** The text of collected output, decoded in steps. */
export async function outputText(
  bytes: Buffer,
  encoding: 'utf8' | 'base64',
  inStep: InStep,
): Promise<string> {
  const decoder = new StringDecoder(encoding);
  let text = '';
  for (let start = 0; start < bytes.length; start += BYTES_OF_STEP) {
    text += await inStep(() => decoder.write(bytes.subarray(start, start + BYTES_OF_STEP)));
  }
  return text + decoder.end();
}
