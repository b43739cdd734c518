import type { RunSpec } from '../../runtime.js';
import { type Entry } from '../archive.js';

export const SCRIPTS_DIRECTORY = '/.sandkeep/scripts';

const DEFAULT_SHELL = '/bin/sh';

export function scriptTexts({ scripts, shell }: RunSpec): [name: string, text: string][] {
  return Object.entries(scripts).map(([name, script]) => [name, withShebang(script, shell ?? DEFAULT_SHELL)]);
}

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

/** The kernel needs an interpreter line. */
function withShebang(script: string, shell: string): string {
  if (script.startsWith('#!')) return script;
  return `#!${shell.startsWith('/') ? shell : `/usr/bin/env ${shell}`}\n${script}`;
}
