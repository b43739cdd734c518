import type Docker from 'dockerode';
import { INSTANCE_LABEL, SANDBOX_LABEL } from '../container.js';
import { ignoreStatus, NOT_FOUND } from '../errors.js';
import { CAPTURED_IMAGES, namesOf } from '../images/engine-image.js';

/** An operator's commit of a container inherits its labels, and has not this comment. */
export const CAPTURE_COMMENT = 'a capture of Sandkeep that is not a snapshot yet';

export interface Commit {
  id: string;
  /** Empty: a later commit has taken its name. */
  names: string[];
}

/** The images that captures of this installation have committed, and that are not snapshots yet. */
export async function listCommits(docker: Docker, instanceId: string): Promise<Commit[]> {
  const images = await docker.listImages({ filters: { label: [`${INSTANCE_LABEL}=${instanceId}`] } });
  const commits: Commit[] = [];
  for (const { Id, RepoTags, Labels } of images) {
    const names = namesOf(RepoTags);
    if ((Labels[SANDBOX_LABEL] ?? '') === '') continue;
    if (names.some((name) => !name.startsWith(`${CAPTURED_IMAGES}:`))) continue;
    const image = await docker.getImage(Id).inspect().catch(ignoreStatus(NOT_FOUND));
    if (image?.Comment === CAPTURE_COMMENT) commits.push({ id: Id, names });
  }
  return commits;
}
