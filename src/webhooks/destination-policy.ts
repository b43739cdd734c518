import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Type } from 'typebox';
import { validatorOf } from '../http/validation.js';
import { writeFileAtomicallySync } from '../lib/atomic-file.js';
import { makeDirectories } from '../lib/directories.js';
import type { DestinationPolicy } from '../outbound/destination.js';

/** A service saves its policy here at start. Commands on the same data directory apply the same policy. */
const FILE = 'webhook-reach.json';

const Saved = Type.Object({ allow: Type.Array(Type.String()), http: Type.Boolean() });
const validate = validatorOf(Saved);

export function saveDestinationPolicy(dataDir: string, { allow, http }: DestinationPolicy): void {
  makeDirectories(dataDir, 0o711);
  const text = `${JSON.stringify({ allow, http })}\n`;
  writeFileAtomicallySync(join(dataDir, FILE), text, { replace: true });
}

/** Undefined if no service has saved a policy, or if this user cannot read it. */
export function readDestinationPolicy(dataDir: string): DestinationPolicy | undefined {
  try {
    const saved: unknown = JSON.parse(readFileSync(join(dataDir, FILE), 'utf8'));
    return validate(saved) ? saved : undefined;
  } catch {
    return undefined;
  }
}
