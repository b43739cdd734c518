import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { ExplainedError } from '../../../lib/explained-error.js';
import { decompress } from './decompress.js';
import type { Kernel } from './kernel.js';

/** The modules of each machine, in the order of their use. */
const BASE = ['virtio_pci', 'virtio_mmio', 'virtio_blk', 'virtio_console', 'erofs', 'overlay', 'ext4'];
/** By what a sandbox needs them for. Those of disk images may be missing in a kernel. */
const MORE = {
  network: ['virtio_net'],
  shared: ['virtiofs'],
  disk: ['xfs', 'squashfs', 'vfat', 'nls_cp437', 'nls_ascii', 'nls_iso8859_1', 'nls_utf8'],
} as const;
const NEEDED: ReadonlySet<string> = new Set([...BASE, ...MORE.network, ...MORE.shared]);

type ModuleUse = keyof typeof MORE;

/** The modules of a kernel that machines load. Each list is in the order of loading. */
export interface Modules {
  /** By their file names, without compression. */
  files: ReadonlyMap<string, Buffer>;
  base: readonly string[];
  more: Readonly<Record<ModuleUse, readonly string[]>>;
}

/** Throws ExplainedError when the kernel lacks one that each machine needs. */
export async function readModules(kernel: Kernel): Promise<Modules> {
  const finder = new ModuleFinder(kernel);
  await finder.open();
  const base = await finder.inOrder(BASE);
  const others = async (use: ModuleUse) =>
    (await finder.inOrder(MORE[use])).filter((name) => !base.includes(name));
  const more = {
    network: await others('network'),
    shared: await others('shared'),
    disk: await others('disk'),
  };
  return { files: finder.files, base, more };
}

/**
 * Finds modules, and those that they need. A module names these itself: the file modules.dep is made only when the
 * package of a kernel is installed.
 */
class ModuleFinder {
  readonly files = new Map<string, Buffer>();
  private readonly paths = new Map<string, string>();
  private builtin: ReadonlySet<string> = new Set();

  constructor(private readonly kernel: Kernel) {}

  async open(): Promise<void> {
    const { modules } = this.kernel;
    for (const entry of await readdir(modules, { recursive: true }))
      if (MODULE.test(entry)) this.paths.set(nameOf(entry), join(modules, entry));
    const list = join(modules, 'modules.builtin');
    if (existsSync(list)) this.builtin = new Set((await readFile(list, 'utf8')).split('\n').map(nameOf));
  }

  /** The file names of modules, each after those that it needs. */
  async inOrder(names: readonly string[]): Promise<string[]> {
    const order: string[] = [];
    const seen = new Set<string>();
    for (const name of names) await this.add(name, order, seen);
    return order;
  }

  /** `seen`: a wish for another module may lead back to it. */
  private async add(name: string, order: string[], seen: Set<string>): Promise<void> {
    if (seen.has(name)) return;
    seen.add(name);
    const path = this.paths.get(name);
    if (path === undefined) {
      if (this.builtin.has(name) || !NEEDED.has(name)) return;
      const { path: kernel } = this.kernel;
      throw new ExplainedError(
        `the kernel ${kernel} lacks the module ${name}: name another with --microvm-kernel`,
      );
    }
    const file = `${name}.ko`;
    const content = this.files.get(file) ?? (await decompress(await readFile(path), path));
    this.files.set(file, content);
    for (const needed of neededBy(content)) await this.add(needed, order, seen);
    order.push(file);
  }
}

const MODULE = /\.ko(\.\w+)?$/;

/** From the section .modinfo: `depends=a,b` and `softdep=pre: a b`, each between bytes of zero. */
function neededBy(module: Buffer): string[] {
  const text = module.toString('latin1');
  const [, depends = ''] = /\0depends=([\w,-]*)(?=\0)/.exec(text) ?? [];
  const soft = [...text.matchAll(/\0softdep=pre: ([\w -]*)(?=\0)/g)].flatMap(([, words = '']) =>
    words.split(' '),
  );
  return [...depends.split(','), ...soft].filter((name) => name !== '').map(plain);
}

/** The kernel writes some names with a hyphen in files, and with an underscore elsewhere. */
function plain(name: string): string {
  return name.replaceAll('-', '_');
}

function nameOf(path: string): string {
  return plain(basename(path).replace(MODULE, ''));
}
