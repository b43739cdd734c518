import type Docker from 'dockerode';
import { randomUUID } from 'node:crypto';
import type { Stats } from 'node:fs';
import {
  chmod,
  mkdir,
  open,
  readdir,
  rename,
  rmdir,
  stat,
  writeFile,
  type FileHandle,
} from 'node:fs/promises';
import { join, posix } from 'node:path';
import { VolumePathError } from '../../../volumes/storage/guest-path.js';
import type { VolumeStore } from '../../../volumes/storage/store.js';
import { StartRefusedError, type Run, type VolumeMount } from '../../runtime.js';
import { statusOf } from '../errors.js';
import {
  RESOLVER_FILES,
  resolverFileContent,
  type ResolverFile,
  type Names,
} from '../files/resolver-files.js';
import { bindMount, O_PATH, detachAndRemove, type MountFlags } from './bind-mount.js';

/** A path of this machine that the engine mounts in the container, at `target`. */
export interface Bind {
  source: string;
  target: string;
  /** Set by the engine. What has flags of its own leaves it out. */
  readonly?: boolean;
}

/** The mounts of one start. Whoever has them releases them. */
export interface StagedMounts {
  binds: readonly Bind[];
  /** Puts the volumes, and the files with these names, in the places of the binds. Until then there is nothing there. */
  attach(names: Names): Promise<void>;
  /** Takes everything away again. A container that has started keeps what it has mounted. */
  release(): Promise<void>;
}

const NOTHING: StagedMounts = {
  binds: [],
  attach: () => Promise.resolve(),
  release: () => Promise.resolve(),
};

interface Source {
  mount: VolumeMount;
  handle: FileHandle;
  isDirectory: boolean;
}

/**
 * Where volumes are mounted for the time of a start, so that the engine can pass them on to a container.
 *
 * The engine takes a path, and follows every symlink that a guest has planted on it; and of the flags of a mount it knows
 * only `ro`. So it is never told where a volume is. We open what is to be mounted without following symlinks, mount what
 * is open, with its flags, in a directory only root can enter, and name that to the engine; the container gets a copy of
 * the mount with its flags. The paths are the same for each start of a sandbox, because a container keeps them.
 */
export class StagingDirectory {
  constructor(
    /** Belongs to this installation on this machine, and to no other process while it starts sandboxes. */
    private readonly directory: string,
    private readonly volumes: VolumeStore,
    /** Why nothing can be mounted here. */
    readonly unusable: string | undefined,
  ) {}

  /** Takes away what starts that were cut short have left. */
  async sweep(): Promise<void> {
    const left = await readdir(this.directory).catch(() => []);
    for (const name of left) await detachAndRemove(join(this.directory, name));
  }

  /** Leaves nothing behind, unless another process is at work here. */
  async close(): Promise<void> {
    await rmdir(this.directory).catch(() => undefined);
  }

  /** Opens what a run mounts. Throws StartRefusedError when something of it is not there. */
  async stage({ orgId, sandboxId, spec }: Run): Promise<StagedMounts> {
    const wanted = spec.mounts.flatMap((mount, index) =>
      mount.type === 'named' || mount.type === 'bind' ? [{ mount, field: `mounts[${index}]` }] : [],
    );
    if (this.unusable !== undefined) {
      if (wanted.length === 0) return NOTHING;
      throw new StartRefusedError(`${wanted[0]!.field}: volumes cannot be mounted, because ${this.unusable}`);
    }
    // Who mounts one of their own there has it.
    const etc = RESOLVER_FILES.filter((file) => !spec.mounts.some(({ guest }) => guest === file));
    const place = join(this.directory, sandboxId);
    const coming = `${place}.new`;
    const sources: Source[] = [];
    const release = async () => {
      await detachAndRemove(place);
      await detachAndRemove(coming);
      await Promise.all(sources.map(({ handle }) => handle.close()));
    };
    try {
      for (const { mount, field } of wanted) sources.push(await this.openSource(orgId, mount, field));
      await detachAndRemove(place);
      // The engine looks for the paths when it makes a container and puts files there. What it is shown until the start
      // is empty: it mounts one thing below another by path, which a guest with a hand in the volume could lead astray.
      await makePoints(place, sources);
      await writeEtc(place, etc);
    } catch (error) {
      await release();
      throw error;
    }
    return {
      binds: [
        ...sources.map(({ mount }, index) => ({ source: join(place, String(index)), target: mount.guest })),
        ...etc.map((file) => ({ source: join(place, posix.basename(file)), target: file, readonly: true })),
      ],
      async attach(names) {
        const targets = [...spec.mounts.map(({ guest }) => guest), ...etc];
        for (const [index, { mount }] of sources.entries()) {
          await checkUntouched(join(place, String(index)), mount, targets);
        }
        await detachAndRemove(coming);
        await makePoints(coming, sources);
        await writeEtc(coming, etc, names);
        for (const [index, { mount, handle }] of sources.entries()) {
          await bindMount(handle, join(coming, String(index)), flagsOf(mount));
        }
        // They appear with all their flags in force.
        await detachAndRemove(place);
        await rename(coming, place);
      },
      release,
    };
  }

  private async openSource(orgId: string, mount: VolumeMount, field: string): Promise<Source> {
    const [path, what] = mount.type === 'bind' ? [mount.host, `${field}.host`] : ['/', `${field}.name`];
    let handle: FileHandle;
    try {
      handle = await this.volumes.openBeneath(orgId, mount.volumeId, path, O_PATH);
    } catch (error) {
      if (!(error instanceof VolumePathError)) throw error;
      const help = error.kind === 'not_found' ? ': put it into the host volume first, then start again' : '';
      throw new StartRefusedError(`${what} cannot be mounted: ${error.message}${help}`, { cause: error });
    }
    const found = await handle.stat();
    if (found.isDirectory() || found.isFile()) {
      return { mount, handle, isDirectory: found.isDirectory() };
    }
    await handle.close();
    throw new StartRefusedError(`${what} cannot be mounted: ${kindOf(found)}`);
  }
}

/**
 * Links of an image can lead a patch to a mount, where it would be lost. Throws StartRefusedError when more is in the
 * place of a mount than the places of others below it.
 */
async function checkUntouched(point: string, mount: VolumeMount, targets: readonly string[]): Promise<void> {
  const expected = targets.filter((target) => target.startsWith(`${mount.guest}/`));
  const found = await readdir(point, { recursive: true }).catch(async (error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOTDIR') throw error;
    return (await stat(point)).size > 0 ? [''] : [];
  });
  const foreign = found.find((name) => {
    const path = posix.join(mount.guest, name);
    return !expected.some((guest) => `${guest}/`.startsWith(`${path}/`));
  });
  if (foreign === undefined) return;
  throw new StartRefusedError(
    `a patch or script leads through a link of the image to ${posix.join(mount.guest, foreign)}, under the mount at ${mount.guest}, where they do not reach`,
  );
}

function kindOf(found: Stats): string {
  return found.isSymbolicLink()
    ? 'it is a symbolic link, which is not followed'
    : 'it is neither a directory nor a file';
}

async function makePoints(directory: string, sources: readonly Source[]): Promise<void> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  for (const [index, { isDirectory }] of sources.entries()) {
    const point = join(directory, String(index));
    await (isDirectory ? mkdir(point) : writeFile(point, ''));
  }
}

/** Empty while nobody knows the names yet. */
async function writeEtc(directory: string, files: readonly ResolverFile[], names?: Names): Promise<void> {
  for (const file of files) {
    const path = join(directory, posix.basename(file));
    await writeFile(path, names === undefined ? '' : resolverFileContent(file, names));
    // Any user of the guest reads them, whatever the service leaves to others of what it makes.
    await chmod(path, 0o644);
  }
}

function flagsOf({ options }: VolumeMount): MountFlags {
  const { readonly = false, noexec = false, nosuid = false, nodev = false } = options ?? {};
  return { readonly, noexec, nosuid, nodev };
}

/**
 * Finds out whether mounts can be made here and passed on, by doing it. Returns why not, in words that go after
 * "because"; undefined when it works.
 */
export async function explainNoMounts(docker: Docker, directory: string): Promise<string | undefined> {
  if (process.platform !== 'linux') return 'that takes Linux';
  if (process.geteuid?.() !== 0) return 'the service does not run as root';
  const scratch = join(directory, `probe-${randomUUID()}`);
  try {
    const source = join(scratch, 'source');
    const target = join(scratch, 'target');
    await mkdir(join(source, 'seen'), { recursive: true, mode: 0o700 });
    await mkdir(target);
    const handle = await open(source, O_PATH);
    try {
      await bindMount(handle, target, { readonly: true, noexec: true, nosuid: true, nodev: true });
    } finally {
      await handle.close();
    }
    if (!(await engineFinds(docker, join(target, 'seen')))) {
      return 'the Docker engine does not see what this process mounts: both must be on one machine, in one mount namespace';
    }
    return (await engineFinds(docker, join(target, 'unseen')))
      ? 'the engine does not look at the source of a mount'
      : undefined;
  } catch (error) {
    return `mounting fails here (${(error as Error).message})`;
  } finally {
    await detachAndRemove(scratch).catch(() => undefined);
    await rmdir(directory).catch(() => undefined);
  }
}

/** An engine looks for the source of a mount before it looks for the image. So it tells, and makes nothing. */
async function engineFinds(docker: Docker, source: string): Promise<boolean> {
  try {
    const made = await docker.createContainer({
      Image: `sandkeep.invalid/probe:${randomUUID()}`,
      HostConfig: { Mounts: [{ Type: 'bind', Source: source, Target: '/probe' }] },
    });
    await made.remove();
    return true;
  } catch (error) {
    const status = statusOf(error);
    if (status !== 404 && status !== 400) throw error;
    return status === 404;
  }
}
