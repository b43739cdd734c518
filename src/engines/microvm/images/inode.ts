export interface InodeFields {
  /** Without the type. */
  mode: number;
  uid: number;
  gid: number;
  /** Since 1970. May be negative. */
  seconds: number;
  nanos: number;
  /** As EROFS stores them: null without any. */
  xattrs: Buffer | null;
}

interface Created extends InodeFields {
  /** In the order of the layers: 0 for the top of the image, then 1, 2 and so on. */
  serial: number;
}

export interface Directory extends Created {
  type: 'directory';
  /** By name. The bytes of a name are characters of a text in Latin-1. */
  children: Map<string, Child>;
  /** The latest layer that hid what earlier layers have here. */
  hiddenBy: number;
}

export interface File extends Created {
  type: 'file';
  size: number;
  /** The first block of its content in the image. Without a block of its own, the last part is among the tails. */
  block: number;
  /** Undefined: the last part has a block. */
  tail: number | undefined;
}

interface Symlink extends Created {
  type: 'symlink';
  target: string;
}

interface Special extends Created {
  type: 'character' | 'block' | 'pipe';
  major: number;
  minor: number;
}

export type Inode = Directory | File | Symlink | Special;

/** Hard links are several children with one inode. */
export interface Child {
  inode: Inode;
  /** The layer that wrote the name, or something below it. */
  layer: number;
}
