import { GUEST_DIRECTORY } from '../guest/programs.js';
import type { RunSpec } from '../spec/run-spec.js';

/** The files that a specification puts on the disk of a sandbox before its first command. */

export const SCRIPTS_DIRECTORY = `${GUEST_DIRECTORY}/scripts`;

const DEFAULT_SHELL = '/bin/sh';

export function hasFiles({ patches, scripts, workdir }: RunSpec): boolean {
  return patches.length > 0 || Object.keys(scripts).length > 0 || workdir !== null;
}

export function scriptTexts({ scripts, shell }: RunSpec): [name: string, text: string][] {
  return Object.entries(scripts).map(([name, script]) => [name, withShebang(script, shell ?? DEFAULT_SHELL)]);
}

/** The kernel needs an interpreter line. */
function withShebang(script: string, shell: string): string {
  if (script.startsWith('#!')) return script;
  return `#!${shell.startsWith('/') ? shell : `/usr/bin/env ${shell}`}\n${script}`;
}

/** Sandboxes of earlier releases have their bytes as numbers. */
export function contentOf({
  type,
  content,
}: Extract<RunSpec['patches'][number], { type: 'text' | 'file' }>): Buffer {
  if (typeof content !== 'string') return Buffer.from(content);
  return Buffer.from(content, type === 'file' ? 'base64' : 'utf8');
}
