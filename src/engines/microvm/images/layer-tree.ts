import { PullError } from '../../../registry/pull-error.js';
import type { TarEntry } from '../../../registry/tar-entry.js';
import { packXattrs } from './erofs-xattrs.js';
import type { Child, Directory, File, Inode, InodeFields } from './inode.js';

/**
 * The memory of the tree of one image, by the estimate below. The paths of entries that a later layer replaces count
 * too, and so does each symlink that leads to an entry: the sum bounds the time of the merge.
 */
export const MAX_TREE_BYTES = 256 * 1_024 * 1_024;
const ENTRY_BYTES = 400;
/** The limits of Linux, in bytes. */
const MAX_PATH = 4_096;
const MAX_TARGET = 4_095;
const MAX_NAME = 255;
const MAX_LINKS = 40;
/** The bytes of the symlinks on the way of one entry: this process resolves them between the requests of others. */
const MAX_LINK_BYTES = 8_192;

const WHITEOUT = '.wh.';
const OPAQUE = '.wh..wh.opq';
/** Files of AUFS in layers of old engines. */
const AUFS = '.wh..wh.';

const PARENT: InodeFields = { mode: 0o755, uid: 0, gid: 0, seconds: 0, nanos: 0, xattrs: null };

/**
 * The files of an image: each layer changes those of the layers before. Symlinks are resolved in this tree alone, so a
 * hostile layer reaches no file of the machine. A directory entry replaces a symlink of that name, and an entry below
 * the symlink is put where it leads, as containerd does.
 */
export class LayerTree {
  readonly root = directory(PARENT, 0);
  /** Those that were replaced or hidden too. */
  inodes = 1;
  private layer = 0;
  private treeBytes = 0;

  constructor(private readonly maxBytes = MAX_TREE_BYTES) {}

  beginLayer(): void {
    this.layer += 1;
  }

  /** Returns the new file that gets the content of the entry. Throws PullError. */
  add(entry: TarEntry): File | undefined {
    const xattrs = packXattrs(entry.xattrs);
    this.charge(ENTRY_BYTES + entry.path.length + entry.target.length + (xattrs?.length ?? 0));
    const names = namesOf(entry.path);
    if (names.some((name) => name.startsWith(AUFS) && name !== OPAQUE)) return undefined;
    const name = names.pop();
    if (name === undefined) {
      if (entry.type === 'directory') Object.assign(this.root, fieldsOf(entry, xattrs));
      return undefined;
    }
    if (name.startsWith(WHITEOUT)) {
      this.hide(names, name);
      return undefined;
    }
    const target = entry.type === 'link' ? this.linked(entry.target) : undefined;
    const parent = this.parentOf(names);
    const existing = parent.children.get(name);
    if (entry.type === 'directory' && existing?.inode.type === 'directory') {
      Object.assign(existing.inode, fieldsOf(entry, xattrs));
      existing.layer = this.layer;
      return undefined;
    }
    const inode = target ?? inodeOf(entry, xattrs, this.nextSerial());
    parent.children.set(name, { inode, layer: this.layer });
    return inode.type === 'file' && !target ? inode : undefined;
  }

  /** A whiteout hides what earlier layers have, and never an entry of its own layer. */
  private hide(names: readonly string[], name: string): void {
    const hidden = name.slice(WHITEOUT.length);
    if (hidden === '' || hidden === '.' || hidden === '..')
      throw new PullError('broken', 'a layer has a whiteout of no name');
    const parent = this.find(names);
    if (!parent) return;
    if (name === OPAQUE) {
      this.hideBelow(parent);
      return;
    }
    const child = parent.children.get(hidden);
    if (!child) return;
    if (child.layer < this.layer) parent.children.delete(hidden);
    else if (child.inode.type === 'directory') this.hideBelow(child.inode);
  }

  /** Each directory is read once for a layer: entries that come later are of this layer. */
  private hideBelow(top: Directory): void {
    const directories = [top];
    for (let found = directories.pop(); found; found = directories.pop()) {
      if (found.hiddenBy === this.layer) continue;
      found.hiddenBy = this.layer;
      for (const [name, { inode, layer }] of found.children) {
        if (layer < this.layer) found.children.delete(name);
        else if (inode.type === 'directory') directories.push(inode);
      }
    }
  }

  private linked(path: string): Inode {
    const names = namesOf(path);
    const name = names.pop();
    const parent = this.find(names);
    const found = name === undefined ? undefined : parent?.children.get(name);
    if (!found || found.inode.type === 'directory')
      throw new PullError('broken', 'a layer has a hard link to a file that does not exist');
    return found.inode;
  }

  /** Creates missing directories. */
  private parentOf(names: readonly string[]): Directory {
    return this.walk(names, (parent, name) => {
      this.charge(ENTRY_BYTES + name.length);
      const made: Child = { inode: directory(PARENT, this.nextSerial()), layer: this.layer };
      parent.children.set(name, made);
      return made;
    })!;
  }

  private find(names: readonly string[]): Directory | undefined {
    return this.walk(names);
  }

  /** With `make`, every directory of the path counts as one of this layer. */
  private walk(
    names: readonly string[],
    make?: (parent: Directory, name: string) => Child,
  ): Directory | undefined {
    let path = [this.root];
    let links = 0;
    let linkBytes = 0;
    const left = names.toReversed();
    for (let name = left.pop(); name !== undefined; name = left.pop()) {
      if (name === '' || name === '.') continue;
      if (name === '..') {
        if (path.length > 1) path.pop();
        continue;
      }
      const parent = path.at(-1)!;
      let child = parent.children.get(name);
      if (child?.inode.type === 'symlink') {
        const { target } = child.inode;
        links += 1;
        linkBytes += target.length;
        this.charge(target.length);
        if (links > MAX_LINKS || linkBytes > MAX_LINK_BYTES)
          throw new PullError('broken', 'a path in a layer has too many symlinks');
        if (target.startsWith('/')) path = [this.root];
        left.push(...target.split('/').toReversed());
        continue;
      }
      if (child?.inode.type !== 'directory') {
        child = make?.(parent, name);
        if (child?.inode.type !== 'directory') return undefined;
      }
      if (make) child.layer = this.layer;
      path.push(child.inode);
    }
    return path.at(-1);
  }

  private nextSerial(): number {
    this.inodes += 1;
    return this.inodes - 1;
  }

  private charge(bytes: number): void {
    this.treeBytes += bytes;
    if (this.treeBytes > this.maxBytes)
      throw new PullError('too_many_parts', `the files need more than ${this.maxBytes} bytes of memory`);
  }
}

function namesOf(path: string): string[] {
  if (path.length > MAX_PATH) throw new PullError('broken', 'a layer has a path that is too long');
  const names = path.split('/').filter((name) => name !== '' && name !== '.');
  if (names.includes('..')) throw new PullError('broken', 'a path in a layer has ".."');
  if (names.some((name) => name.length > MAX_NAME))
    throw new PullError('broken', 'a layer has a name that is too long');
  return names;
}

function inodeOf(entry: TarEntry, xattrs: Buffer | null, serial: number): Inode {
  const fields = { serial, ...fieldsOf(entry, xattrs) };
  const { type, target, major, minor, size } = entry;
  switch (type) {
    case 'directory':
      return directory(fields, serial);
    case 'file':
      return { type, ...fields, size, block: 0, tail: undefined };
    case 'symlink':
      if (target === '' || target.length > MAX_TARGET)
        throw new PullError('broken', 'a layer has a symlink with an impossible target');
      return { type, ...fields, mode: 0o777, target };
    case 'character':
    case 'block':
    case 'pipe':
      return { type, ...fields, major, minor };
    case 'link':
      throw new Error('a hard link has no inode of its own');
  }
}

function fieldsOf({ mode, uid, gid, seconds, nanos }: TarEntry, xattrs: Buffer | null): InodeFields {
  return { mode, uid, gid, seconds, nanos, xattrs };
}

function directory(fields: InodeFields, serial: number): Directory {
  return { type: 'directory', serial, ...fields, children: new Map(), hiddenBy: 0 };
}
