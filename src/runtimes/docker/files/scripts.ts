import type { RunSpec } from '../../runtime.js';
import { type Entry } from '../archive.js';

export const SCRIPTS_DIRECTORY = '/.sandkeep/scripts';

const DEFAULT_SHELL = '/bin/sh';

export function scriptEntries({ scripts, shell }: RunSpec): Entry[] {
  const names = Object.keys(scripts);
  if (names.length === 0) return [];
  const directories = ['.sandkeep', '.sandkeep/scripts'].map((name): Entry => ({
    name,
    type: 'directory',
    mode: 0o755,
  }));
  return [
    ...directories,
    ...names.map((name): Entry => ({
      name: `.sandkeep/scripts/${name}`,
      type: 'file',
      mode: 0o755,
      content: Buffer.from(withShebang(scripts[name]!, shell ?? DEFAULT_SHELL)),
    })),
  ];
}

/** The kernel needs an interpreter line. */
function withShebang(script: string, shell: string): string {
  if (script.startsWith('#!')) return script;
  return `#!${shell.startsWith('/') ? shell : `/usr/bin/env ${shell}`}\n${script}`;
}
