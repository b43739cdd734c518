import { chmod, mkdir, readdir, rename, rmdir, stat, writeFile } from 'node:fs/promises';
import { join, posix } from 'node:path';
import type { VolumeStore } from '../../../volumes/storage/store.js';
import { holdMountsToCaps, openMountSource, type MountSource } from '../../../engine/mount-sources.js';
import { StartRefusedError, type Run } from '../../../engine/runtime.js';
import type { VolumeMount } from '../../../spec/run-spec.js';
import {
  RESOLVER_FILES,
  resolverFileContent,
  type ResolverConfig,
  type ResolverFile,
} from '../../../machine-network/resolver-files.js';
import { bindMount, detachAndRemove, type MountFlags } from './bind-mount.js';
import { addGuestFiles, GUEST_FILES, writeGuestFiles, type GuestFile } from './guest-files.js';
import { GUEST_DIRECTORY } from '../../../guest/programs.js';

export interface Bind {
  source: string;
  target: string;
  /** Undefined for volumes, whose source has the flags. */
  readonly?: boolean;
}

export interface StagedMounts {
  binds: readonly Bind[];
  /** Fills the binds, which are empty until then. */
  attach(config: ResolverConfig): Promise<void>;
  /** After `attach`. By their paths in the sandbox, below GUEST_DIRECTORY. */
  addGuestFiles(files: ReadonlyMap<string, GuestFile>): Promise<void>;
  release(): Promise<void>;
}

const NO_MOUNTS: StagedMounts = {
  binds: [],
  attach: () => Promise.resolve(),
  addGuestFiles: () => Promise.resolve(),
  release: () => Promise.resolve(),
};

interface Source extends MountSource {
  mount: VolumeMount;
}

/**
 * Mounts volumes during a start in a directory that only root may enter, where the engine copies the mounts with their
 * flags. The engine follows symlinks that a guest planted, and knows no flag but `ro`: it must not open a volume. A
 * container keeps its paths, so they are the same for each start.
 */
export class StagingDirectory {
  constructor(
    private readonly directory: string,
    private readonly volumes: VolumeStore,
    /** Those of the service by their paths in a sandbox. */
    private readonly programs: ReadonlyMap<string, Buffer>,
    readonly unavailable: string | undefined,
  ) {}

  async sweep(): Promise<void> {
    const names = await readdir(this.directory).catch(() => []);
    for (const name of names) await detachAndRemove(join(this.directory, name));
  }

  async close(): Promise<void> {
    await rmdir(this.directory).catch(() => undefined);
  }

  async holdToCaps(run: Run, signal: AbortSignal): Promise<void> {
    if (this.unavailable === undefined) await holdMountsToCaps(this.volumes, run, signal);
  }

  async stage({ orgId, sandboxId, spec }: Run): Promise<StagedMounts> {
    const requested = spec.mounts.flatMap((mount, index) =>
      mount.type === 'named' || mount.type === 'bind' ? [{ mount, field: `mounts[${index}]` }] : [],
    );
    if (this.unavailable !== undefined) {
      if (requested.length === 0) return NO_MOUNTS;
      throw new StartRefusedError(
        `${requested[0]!.field}: volumes cannot be mounted on this machine; "sandkeep doctor" shows the operator the reason`,
        { cause: this.unavailable },
      );
    }
    // A mount of the user replaces the file.
    const resolverFiles = RESOLVER_FILES.filter((file) => !spec.mounts.some(({ guest }) => guest === file));
    const { programs } = this;
    const current = join(this.directory, sandboxId);
    const next = `${current}.new`;
    const sources: Source[] = [];
    const release = async () => {
      await detachAndRemove(current);
      await detachAndRemove(next);
      await Promise.all(sources.map(({ handle }) => handle.close()));
    };
    try {
      for (const { mount, field } of requested) {
        sources.push({ mount, ...(await openMountSource(this.volumes, orgId, mount, field)) });
      }
      await detachAndRemove(current);
      // Empty: the engine nests mounts by path, which a guest with access to a volume could redirect.
      await createMountPoints(current, sources);
      await writeResolverFiles(current, resolverFiles);
      await mkdir(join(current, GUEST_FILES));
    } catch (error) {
      await release();
      throw error;
    }
    return {
      binds: [
        ...sources.map(({ mount }, index) => ({ source: join(current, String(index)), target: mount.guest })),
        ...resolverFiles.map((file) => ({
          source: join(current, posix.basename(file)),
          target: file,
          readonly: true,
        })),
        // `readonly` also makes programs executable where the directory is not: the engine replaces the flags of the
        // mount.
        { source: join(current, GUEST_FILES), target: GUEST_DIRECTORY, readonly: true },
      ],
      async attach(config) {
        const targets = [...spec.mounts.map(({ guest }) => guest), ...resolverFiles];
        for (const [index, { mount }] of sources.entries()) {
          await checkHidesNothing(join(current, String(index)), mount, targets);
        }
        await detachAndRemove(next);
        await createMountPoints(next, sources);
        await writeResolverFiles(next, resolverFiles, config);
        await writeGuestFiles(next, programs, spec);
        for (const [index, { mount, handle }] of sources.entries()) {
          await bindMount(handle, join(next, String(index)), mountFlagsOf(mount));
        }
        await detachAndRemove(current);
        await rename(next, current);
      },
      addGuestFiles: (files) => addGuestFiles(current, files),
      release,
    };
  }
}

/** A mount hides a patch that a link of the image leads there. Throws StartRefusedError for such a patch. */
async function checkHidesNothing(
  point: string,
  mount: VolumeMount,
  targets: readonly string[],
): Promise<void> {
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
    `a patch follows a link of the image to ${posix.join(mount.guest, foreign)}, which the mount at ${mount.guest} hides: write to another path`,
  );
}

async function createMountPoints(directory: string, sources: readonly Source[]): Promise<void> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  for (const [index, { isDirectory }] of sources.entries()) {
    const point = join(directory, String(index));
    await (isDirectory ? mkdir(point) : writeFile(point, ''));
  }
}

async function writeResolverFiles(
  directory: string,
  files: readonly ResolverFile[],
  config?: ResolverConfig,
): Promise<void> {
  for (const file of files) {
    const path = join(directory, posix.basename(file));
    await writeFile(path, config === undefined ? '' : resolverFileContent(file, config));
    // The umask must not keep guest users from reading them.
    await chmod(path, 0o644);
  }
}

function mountFlagsOf({ options }: VolumeMount): MountFlags {
  const { readonly = false, noexec = false, nosuid = false, nodev = false } = options ?? {};
  return { readonly, noexec, nosuid, nodev };
}
