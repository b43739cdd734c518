import { Buffer } from 'node:buffer';
import { open, readFile, type FileHandle } from 'node:fs/promises';
import { readCommandLine, RECORD_BYTES, type CommandState } from '../../guest/command-end.js';

interface OpenLine {
  pid: number;
  /** Undefined: the process is not one of the container. */
  file: Promise<FileHandle | undefined>;
}

/**
 * Reads the records of process 1 of containers in /proc of this machine.
 *
 * The file of a container stays open. Each pass reads all of them, and to open, check and close one costs eight times
 * the processor time of the read. An open file belongs to its process: once that has ended, it says nothing of a later
 * process with the same number.
 */
export class CommandLines {
  private readonly lines = new Map<string, OpenLine>();

  /**
   * Undefined when the engine has other processes than this machine shows, or the container runs under a kernel of its
   * own.
   */
  async read(containerId: string, pid: number): Promise<CommandState | undefined> {
    const line = this.lineOf(containerId, pid);
    try {
      const file = await line.file;
      // A buffer of its own: others read meanwhile.
      const bytes = Buffer.allocUnsafe(RECORD_BYTES);
      const read = await file?.read(bytes, 0, RECORD_BYTES, 0);
      if (read) return readCommandLine(bytes.subarray(0, read.bytesRead));
    } catch {
      // The process has ended.
    }
    this.forget(containerId, line);
    return undefined;
  }

  /** Closes the files of other containers. */
  keepOnly(containerIds: ReadonlySet<string>): void {
    for (const [id, line] of this.lines) if (!containerIds.has(id)) this.forget(id, line);
  }

  close(): void {
    this.keepOnly(new Set());
  }

  private lineOf(containerId: string, pid: number): OpenLine {
    const known = this.lines.get(containerId);
    if (known?.pid === pid) return known;
    if (known) this.forget(containerId, known);
    const line = { pid, file: openOf(containerId, pid) };
    this.lines.set(containerId, line);
    return line;
  }

  private forget(containerId: string, line: OpenLine): void {
    if (this.lines.get(containerId) === line) this.lines.delete(containerId);
    // It waits for reads that have begun. A second close does nothing.
    void line.file.then(async (file) => file?.close());
  }
}

async function openOf(containerId: string, pid: number): Promise<FileHandle | undefined> {
  let file: FileHandle | undefined;
  try {
    file = await open(`/proc/${pid}/cmdline`);
    // After the file was opened: until then the number may have become another process.
    if ((await readFile(`/proc/${pid}/cgroup`, 'latin1')).includes(containerId)) return file;
  } catch {
    // The process has ended, or this process may not see it.
  }
  await file?.close();
  return undefined;
}
