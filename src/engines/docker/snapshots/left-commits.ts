import type Docker from 'dockerode';
import { randomUUID } from 'node:crypto';
import { INSTANCE_LABEL, SANDBOX_LABEL } from '../container.js';
import { ignoreStatus, NOT_FOUND } from '../errors.js';
import { CAPTURED_IMAGES, namesOf } from '../images/engine-image.js';

/** Comments of captures begin with it. An operator's commit has the labels of its container, and no such comment. */
const COMMENT = 'a capture of Sandkeep that is not a snapshot yet';

/** The image that an attempt of a capture commits, under a name of its own. */
export interface Attempt {
  /** The engine makes an image before it names it, and with the comment. */
  comment: string;
  name: string;
}

export function newAttempt(): Attempt {
  const id = randomUUID();
  return { comment: `${COMMENT}: ${id}`, name: `${CAPTURED_IMAGES}:${id}` };
}

export interface Commit {
  id: string;
  names: string[];
  comment: string;
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
    const comment = image?.Comment ?? '';
    if (comment.startsWith(COMMENT)) commits.push({ id: Id, names, comment });
  }
  return commits;
}
