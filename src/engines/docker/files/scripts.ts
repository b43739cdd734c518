import { scriptTexts } from '../../../engine/run-files.js';
import type { RunSpec } from '../../../spec/run-spec.js';
import { type Entry } from '../archive.js';

export function scriptEntries(spec: RunSpec): Entry[] {
  const texts = scriptTexts(spec);
  if (texts.length === 0) return [];
  const directories = ['.sandkeep', '.sandkeep/scripts'].map((name): Entry => ({
    name,
    type: 'directory',
    mode: 0o755,
  }));
  return [
    ...directories,
    ...texts.map(([name, text]): Entry => ({
      name: `.sandkeep/scripts/${name}`,
      type: 'file',
      mode: 0o755,
      content: Buffer.from(text),
    })),
  ];
}
