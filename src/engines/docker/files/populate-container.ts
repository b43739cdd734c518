import type Docker from 'dockerode';
import { scriptTexts } from '../../../engine/run-files.js';
import type { RunSpec } from '../../../spec/run-spec.js';
import { writeEntries, type Entry } from '../archive.js';
import { applyPatches } from './patches.js';
import { makeWorkdir } from './workdir.js';

interface PopulateOptions {
  /** That of the image. */
  user: string;
  /** The paths of volumes in the sandbox. */
  mounts: readonly string[];
  /** They are in a mount. */
  hasScripts: boolean;
  /** Throws when the engine cannot look at the disk. */
  check: (() => Promise<void>) | undefined;
}

export async function populateContainer(
  container: Docker.Container,
  spec: RunSpec,
  { user, mounts, hasScripts, check }: PopulateOptions,
): Promise<void> {
  const entries = hasScripts ? [] : scriptEntries(spec);
  if (spec.patches.length > 0 || entries.length > 0 || spec.workdir !== null) await check?.();
  await applyPatches(container, spec, check);
  if (entries.length > 0) await writeEntries(container, entries);
  if (spec.workdir === null) return;
  const tmpfs = spec.mounts.flatMap((mount) => (mount.type === 'tmpfs' ? [mount.guest] : []));
  const owner = spec.user ?? user;
  await makeWorkdir(container, { workdir: spec.workdir, user: owner, mounts: [...mounts, ...tmpfs] });
}

function scriptEntries(spec: RunSpec): Entry[] {
  const texts = scriptTexts(spec);
  if (texts.length === 0) return [];
  const directories = ['.sandkeep', '.sandkeep/scripts'].map((name): Entry => ({
    name,
    type: 'directory',
    mode: 0o755,
  }));
  return [
    ...directories,
    ...texts.map(([name, text]): Entry => ({
      name: `.sandkeep/scripts/${name}`,
      type: 'file',
      mode: 0o755,
      content: Buffer.from(text),
    })),
  ];
}
