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

export interface Bind {
  source: string;
  target: string;
  /** Undefined for volumes, whose source has the flags. */
  readonly?: boolean;
}

/** The mounts of one start. The caller releases them. */
export interface StagedMounts {
  binds: readonly Bind[];
  /** Fills the empty binds with the volumes and the resolver files. */
  attach(names: Names): Promise<void>;
  /** A started container keeps its mounts. */
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
 * Mounts volumes for the duration of a start, so that the engine can pass them to a container. The engine follows
 * symlinks that a guest planted in a path, and knows no mount flag but `ro`. So the service opens the source without
 * following symlinks, and mounts that descriptor, with its flags, in a directory that only root may enter. The
 * container gets a copy of that mount. A container keeps its paths, so they are the same for each start of a sandbox.
 */
export class StagingDirectory {
  constructor(
    /** Only the process that starts sandboxes uses it. */
    private readonly directory: string,
    private readonly volumes: VolumeStore,
    /** The reason why mounts do not work here. */
    readonly unusable: string | undefined,
  ) {}

  /** Removes the mounts of interrupted starts. */
  async sweep(): Promise<void> {
    const left = await readdir(this.directory).catch(() => []);
    for (const name of left) await detachAndRemove(join(this.directory, name));
  }

  async close(): Promise<void> {
    await rmdir(this.directory).catch(() => undefined);
  }

  /** Throws StartRefusedError when a source is missing. */
  async stage({ orgId, sandboxId, spec }: Run): Promise<StagedMounts> {
    const wanted = spec.mounts.flatMap((mount, index) =>
      mount.type === 'named' || mount.type === 'bind' ? [{ mount, field: `mounts[${index}]` }] : [],
    );
    if (this.unusable !== undefined) {
      if (wanted.length === 0) return NOTHING;
      throw new StartRefusedError(`${wanted[0]!.field}: volumes cannot be mounted, because ${this.unusable}`);
    }
    // A mount of the user replaces the file.
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
      // The engine needs the paths to create a container. They are empty until the start: the engine nests mounts by
      // path, and a guest with access to the volume could redirect it.
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
        // The rename shows all mounts at once, with their flags.
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
 * A link in the image can lead a patch under a mount, which would hide it. Throws StartRefusedError for anything in the
 * mount point except nested mount points.
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
    `a patch or script follows a link of the image to ${posix.join(mount.guest, foreign)}, which the mount at ${mount.guest} hides: write to another path`,
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

/** Empty until the names are known. */
async function writeEtc(directory: string, files: readonly ResolverFile[], names?: Names): Promise<void> {
  for (const file of files) {
    const path = join(directory, posix.basename(file));
    await writeFile(path, names === undefined ? '' : resolverFileContent(file, names));
    // The umask of the service must not keep guest users from reading them.
    await chmod(path, 0o644);
  }
}

function flagsOf({ options }: VolumeMount): MountFlags {
  const { readonly = false, noexec = false, nosuid = false, nodev = false } = options ?? {};
  return { readonly, noexec, nosuid, nodev };
}

/** Probes mounts by making one. Returns a clause for the words after "because"; undefined when mounts work. */
export async function explainNoMounts(docker: Docker, directory: string): Promise<string | undefined> {
  if (process.platform !== 'linux') return 'mounts require Linux';
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
      ? 'the engine does not check the source of a mount'
      : undefined;
  } catch (error) {
    return `mounting fails on this machine (${(error as Error).message})`;
  } finally {
    await detachAndRemove(scratch).catch(() => undefined);
    await rmdir(directory).catch(() => undefined);
  }
}

/**
 * The engine checks the source before the image, so the answer tells whether it sees the source, and creates nothing.
 */
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
