import { readFile } from 'node:fs/promises';

export interface MountEntry {
  point: string;
  flags: string[];
  /** Such as `/dev/loop0`. */
  source: string;
}

/** The mounts of this process at a directory and below it, in the order in which they were made. */
export async function mountsBelow(directory: string): Promise<MountEntry[]> {
  const table = await readFile('/proc/self/mountinfo', 'utf8');
  return table.split('\n').flatMap((line) => {
    const [, , , , point = '', flags = ''] = line.split(' ');
    const path = unescape(point);
    if (path !== directory && !path.startsWith(`${directory}/`)) return [];
    const [, , source = ''] = line.slice(line.indexOf(' - ') + 1).split(' ');
    return [{ point: path, flags: flags.split(','), source: unescape(source) }];
  });
}

/** The kernel writes a space as `\040`. */
function unescape(text: string): string {
  return text.replace(/\\(\d{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}
