import { GrowingBuffer } from '../../lib/growing-buffer.js';
import { READ_ONLY, type GuestFiles } from '../../guest/guest.js';
import { statIfThere } from '../../sandboxes/files/entry.js';

const MOST_BYTES = 1024 * 1024;
const NUMBER = /^\d{1,10}$/;

export interface Owner {
  uid: number;
  gid: number;
}

/** Reads `user`, `user:group` or numbers. Names are those of the sandbox. Throws with a message for people. */
export async function readOwner(files: GuestFiles, text: string | null): Promise<Owner> {
  if (text === null) return { uid: 0, gid: 0 };
  const [user = '', group] = text.split(/:(.*)/s);
  const accounts = async (path: string) => parseAccounts(await readText(files, path));
  let uid = NUMBER.test(user) ? Number(user) : undefined;
  let gid = uid;
  if (uid === undefined) {
    const account = (await accounts('/etc/passwd')).get(user);
    if (!account)
      throw new Error(
        `the user "${user.slice(0, 80)}" is not in /etc/passwd of the sandbox: add it by RUN, or use a number`,
      );
    ({ uid, gid } = account);
  }
  if (group !== undefined) {
    gid = NUMBER.test(group) ? Number(group) : (await accounts('/etc/group')).get(group)?.uid;
    if (gid === undefined)
      throw new Error(
        `the group "${group.slice(0, 80)}" is not in /etc/group of the sandbox: add it by RUN, or use a number`,
      );
  }
  return { uid, gid: gid ?? uid };
}

/** `name:password:id:…`. In /etc/passwd the id of the group follows. */
function parseAccounts(text: string): Map<string, Owner> {
  const accounts = new Map<string, Owner>();
  for (const line of text.split('\n')) {
    const [name = '', , id = '', group = ''] = line.split(':');
    if (!NUMBER.test(id) || accounts.has(name)) continue;
    accounts.set(name, { uid: Number(id), gid: NUMBER.test(group) ? Number(group) : Number(id) });
  }
  return accounts;
}

/** Empty: there is no such file. */
async function readText(files: GuestFiles, path: string): Promise<string> {
  if (!(await statIfThere(files, path, { follow: true }))) return '';
  const handle = await files.open(path, READ_ONLY);
  const text = new GrowingBuffer();
  while (text.length < MOST_BYTES) {
    const part = await files.read(handle, BigInt(text.length), 64 * 1024);
    if (part.length === 0) break;
    text.push(part);
  }
  await files.close(handle);
  return text.bytes.toString();
}
