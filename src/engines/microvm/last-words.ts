import { Buffer } from 'node:buffer';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import type { SandboxPlaces } from './places.js';

/** They are for a line of the log of the service. */
const MOST_BYTES = 2_048;

/** The end of what QEMU and the kernel of the latest run have said. Empty: nothing. A sandbox may have written it. */
export async function lastWords({ run }: Pick<SandboxPlaces, 'run'>): Promise<string> {
  const file = await open(join(run, 'console'), 'r').catch(() => undefined);
  if (!file) return '';
  try {
    const { size } = await file.stat();
    const buffer = Buffer.alloc(MOST_BYTES);
    const { bytesRead } = await file.read(buffer, 0, MOST_BYTES, Math.max(0, size - MOST_BYTES));
    const lines = buffer.toString('latin1', 0, bytesRead).split(/[\r\n]+/);
    return lines
      .map((line) => line.replaceAll(/[^ -~]/g, '?').trim())
      .filter((line) => line !== '')
      .join(' | ');
  } finally {
    await file.close();
  }
}
