import { readFileSync } from 'node:fs';

/** How many descriptors this process may have open. Undefined: the system does not tell. */
export function descriptorLimit(): number | undefined {
  try {
    const [, soft] =
      /^Max open files +(\d+|unlimited) /m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? [];
    return soft === undefined ? undefined : soft === 'unlimited' ? Infinity : Number(soft);
  } catch {
    return undefined;
  }
}

/** The process, or the whole machine, may open no more files or connections. */
export function isOutOfDescriptors(error: unknown): boolean {
  return ['EMFILE', 'ENFILE'].includes((error as NodeJS.ErrnoException).code ?? '');
}
