import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Type } from 'typebox';
import { compile } from '../http/validation.js';
import { writeFileAtomicallySync } from '../lib/atomic-file.js';
import { makeDirectories } from '../lib/directories.js';
import type { Reach } from '../outbound/destination.js';

/** Commands judge addresses like the service on the same data directory, which notes here what it was started with. */
const FILE = 'webhook-reach.json';

const Noted = Type.Object({ allow: Type.Array(Type.String()), http: Type.Boolean() });
const validate = compile(Noted);

export function noteReach(dataDir: string, { allow, http }: Reach): void {
  makeDirectories(dataDir, 0o711);
  const text = `${JSON.stringify({ allow, http })}\n`;
  writeFileAtomicallySync(join(dataDir, FILE), text, { replace: true });
}

/** Undefined when no service noted it here, or this user cannot read it. */
export function servedReach(dataDir: string): Reach | undefined {
  try {
    const noted: unknown = JSON.parse(readFileSync(join(dataDir, FILE), 'utf8'));
    return validate(noted) ? (noted as Reach) : undefined;
  } catch {
    return undefined;
  }
}
