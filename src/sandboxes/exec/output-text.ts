import { Buffer } from 'node:buffer';
import { StringDecoder } from 'node:string_decoder';
import type { InStep } from './stream.js';

const BYTES_OF_STEP = 64 * 1024;

/** The text of collected output. Each step decodes as much, however small the pieces were that the command wrote. */
export async function outputText(
  parts: readonly Buffer[],
  encoding: 'utf8' | 'base64',
  inStep: InStep,
): Promise<string> {
  const bytes = Buffer.concat(parts);
  const decoder = new StringDecoder(encoding);
  let text = '';
  for (let start = 0; start < bytes.length; start += BYTES_OF_STEP) {
    text += await inStep(() => decoder.write(bytes.subarray(start, start + BYTES_OF_STEP)));
  }
  return text + decoder.end();
}
