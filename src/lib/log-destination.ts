import { pino, type DestinationStream } from 'pino';
import { escapeControls, escapeControlsInLines } from './escape-controls.js';

export const LOG_FORMATS = ['auto', 'json', 'text'] as const;
export type LogFormat = (typeof LOG_FORMATS)[number];

/** Standard error: JSON lines for programs, text for a terminal. */
export async function openLogDestination(format: LogFormat): Promise<DestinationStream> {
  const standardError = pino.destination({ fd: 2, sync: true });
  if (format === 'json' || (format === 'auto' && !process.stderr.isTTY)) return standardError;
  // Loaded on demand: most services log JSON.
  const { prettyFactory } = await import('pino-pretty');
  const pretty = prettyFactory({
    colorize: process.stderr.isTTY,
    translateTime: 'SYS:HH:MM:ss',
    singleLine: true,
  });
  return {
    write(lines) {
      const texts = lines.split('\n').filter((line) => line !== '');
      standardError.write(texts.map((line) => pretty(harmless(JSON.parse(line)))).join(''));
    },
  };
}

/** Callers and engines choose parts of messages: these must not control the terminal. Only a stack has lines. */
function harmless(value: unknown, name = ''): unknown {
  if (typeof value === 'string') {
    return name === 'stack' ? escapeControlsInLines(value) : escapeControls(value);
  }
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map((each) => harmless(each));
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, harmless(each, key)]));
}
