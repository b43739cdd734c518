import type Docker from 'dockerode';
import { followedPath, readFile, statPath } from '../archive.js';

/** The image chooses the files. */
const LARGEST_FILE = 1024 * 1024;

/**
 * The ids of `name`, `uid`, `name:group` or `uid:gid` in a container that has not started, as the engine reads them.
 * Undefined: unknown.
 */
export async function findUser(
  container: Docker.Container,
  text: string,
): Promise<{ uid: number; gid: number } | undefined> {
  const [name = '', group] = text.split(':');
  if (name === '' || name === 'root' || name === '0') return { uid: 0, gid: 0 };
  const users = await fieldsOf(container, '/etc/passwd');
  const user = users.find((fields) => fields[0] === name) ?? users.find((fields) => fields[2] === name);
  const uid = idOf(user?.[2] ?? name);
  if (group === undefined) return uid === undefined ? undefined : { uid, gid: idOf(user?.[3]) ?? 0 };
  const groups = await fieldsOf(container, '/etc/group');
  const gid = idOf(groups.find((fields) => fields[0] === group)?.[2] ?? group);
  return uid === undefined || gid === undefined ? undefined : { uid, gid };
}

function idOf(text: string | undefined): number | undefined {
  return text !== undefined && /^\d{1,10}$/.test(text) ? Number(text) : undefined;
}

async function fieldsOf(container: Docker.Container, path: string): Promise<string[][]> {
  const file = await followedPath(container, path);
  const found = file === undefined ? undefined : await statPath(container, file);
  if (found?.type !== 'file' || found.size > LARGEST_FILE) return [];
  const { content } = (await readFile(container, file!, LARGEST_FILE)) ?? { content: '' };
  return content
    .toString()
    .split('\n')
    .map((line) => line.split(':'));
}
