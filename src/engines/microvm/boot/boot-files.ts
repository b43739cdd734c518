import { Buffer } from 'node:buffer';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { BUILDS, PROGRAMS_DIRECTORY, readPrograms, type Build } from '../../../guest/programs.js';
import { ExplainedError } from '../../../lib/explained-error.js';
import { PACKAGE_ROOT } from '../../../lib/package-root.js';
import { makeCpio, type CpioEntry } from './cpio.js';
import { findKernel, readKernel } from './kernel.js';
import { readModules, type Modules } from './modules.js';

/** The files that a monitor starts a machine from, and the modules for its boot configuration. */
export interface BootFiles {
  kernel: string;
  initramfs: string;
  modules: Modules['more'];
}

const PARTS = ['kernel', 'initramfs'] as const;
/** The monitor opens them as another user. */
const MODE = 0o444;

/**
 * Makes the kernel and the initial file system, or finds them: `directory` keeps them by their content. `kernel`: the
 * path of one. Throws ExplainedError.
 */
export async function bootFiles(options: {
  directory: string;
  kernel?: string | undefined;
}): Promise<BootFiles> {
  const build = BUILDS[process.arch === 'x64' ? 'x86_64' : process.arch];
  if (build === undefined)
    throw new ExplainedError(`no virtual machine runs on the processor ${process.arch}`);
  const kernel = await findKernel(options.kernel);
  const modules = await readModules(kernel);
  const content = { kernel: await readKernel(kernel), initramfs: await makeInitramfs(build, modules) };
  const hash = createHash('sha256');
  for (const part of PARTS) hash.update(createHash('sha256').update(content[part]).digest());
  const place = join(options.directory, hash.digest('hex').slice(0, 16));
  if (!existsSync(place)) await keep(options.directory, place, content);
  await removeOthers(options.directory, basename(place));
  return { kernel: join(place, 'kernel'), initramfs: join(place, 'initramfs'), modules: modules.more };
}

async function makeInitramfs(build: Build, modules: Modules): Promise<Buffer> {
  const boot = await readFile(join(PACKAGE_ROOT, 'guest', `boot-${build}`));
  const entries: CpioEntry[] = [
    { path: 'dev', type: 'directory' },
    // The kernel opens it for process 1 before anything is mounted.
    { path: 'dev/console', type: 'device', major: 5, minor: 1 },
    { path: 'init', type: 'file', mode: 0o500, content: boot },
    { path: 'programs', type: 'directory' },
  ];
  for (const [path, content] of readPrograms(build)) {
    const name = path.slice(PROGRAMS_DIRECTORY.length + 1);
    entries.push({ path: `programs/${name}`, type: 'file', mode: 0o555, content });
  }
  entries.push({ path: 'modules', type: 'directory' });
  for (const [name, content] of modules.files)
    entries.push({ path: `modules/${name}`, type: 'file', mode: 0o400, content });
  const base = Buffer.from(modules.base.map((name) => `${name}\n`).join(''));
  entries.push({ path: 'modules/base', type: 'file', mode: 0o400, content: base });
  return makeCpio(entries);
}

/** Another process may make the same at this moment. */
async function keep(
  directory: string,
  place: string,
  content: Record<(typeof PARTS)[number], Buffer>,
): Promise<void> {
  await mkdir(directory, { recursive: true });
  const draft = await mkdtemp(join(directory, DRAFT));
  for (const part of PARTS) {
    await writeFile(join(draft, part), content[part], { flush: true });
    await chmod(join(draft, part), MODE);
  }
  await rename(draft, place).catch(async (error: unknown) => {
    await rm(draft, { recursive: true, force: true });
    if (!existsSync(place)) throw error;
  });
}

const DRAFT = 'draft-';

/** Machines that run have theirs open. */
async function removeOthers(directory: string, current: string): Promise<void> {
  const others = (await readdir(directory)).filter((name) => name !== current && !name.startsWith(DRAFT));
  for (const name of others) await rm(join(directory, name), { recursive: true, force: true });
}
