import type Docker from 'dockerode';
import { randomUUID } from 'node:crypto';
import { mkdir, open, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { O_PATH } from '../../../volumes/storage/guest-path.js';
import { NOT_FOUND, statusOf } from '../errors.js';
import { bindMount, detachAndRemove } from './bind-mount.js';

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
    if (!(await engineSees(docker, join(target, 'seen')))) {
      return 'the Docker engine does not see what this process mounts: both must be on one machine, in one mount namespace';
    }
    return (await engineSees(docker, join(target, 'unseen')))
      ? 'the engine does not check the source of a mount'
      : undefined;
  } catch (error) {
    return `mounting fails on this machine (${(error as Error).message})`;
  } finally {
    await detachAndRemove(scratch).catch(() => undefined);
    await rmdir(directory).catch(() => undefined);
  }
}

/** Creates nothing: the engine checks the source before it finds no image. */
async function engineSees(docker: Docker, source: string): Promise<boolean> {
  try {
    const container = await docker.createContainer({
      Image: `sandkeep.invalid/probe:${randomUUID()}`,
      HostConfig: { Mounts: [{ Type: 'bind', Source: source, Target: '/probe' }] },
    });
    await container.remove();
    return true;
  } catch (error) {
    const status = statusOf(error);
    if (status !== NOT_FOUND && status !== 400) throw error;
    return status === NOT_FOUND;
  }
}
