import dockerignore from '@balena/dockerignore';
import { createReadStream, existsSync, lstatSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import { pack, type Pack } from 'tar-stream';
import { ExplainedError } from '../lib/explained-error.js';

const IGNORE_FILE = '.dockerignore';

/** The files of a directory that its `.dockerignore` does not name, as an archive packed by gzip. */
export function packContext(directory: string, dockerfile: string): Readable {
  if (!existsSync(directory) || !lstatSync(directory).isDirectory()) {
    throw new ExplainedError(`"${directory}" is no directory: name the one with the context`);
  }
  if (!existsSync(join(directory, dockerfile))) {
    throw new ExplainedError(`there is no "${dockerfile}" in "${directory}": name the Dockerfile by --file`);
  }
  const isIgnored = ignoredIn(directory, dockerfile);
  const archive = pack();
  const packed = createGzip();
  addAll(archive, directory, isIgnored).catch((error: Error) => archive.destroy(error));
  archive.on('error', (error) => packed.destroy(error));
  archive.pipe(packed);
  return packed;
}

/** The Dockerfile and the list itself are never left out: the build reads the first. */
function ignoredIn(directory: string, dockerfile: string): (path: string) => boolean {
  const file = join(directory, IGNORE_FILE);
  if (!existsSync(file)) return () => false;
  const rules = dockerignore.default().add(readFileSync(file, 'utf8'));
  const kept = new Set([dockerfile, IGNORE_FILE]);
  return (path) => !kept.has(path) && rules.ignores(path);
}

async function addAll(archive: Pack, directory: string, isIgnored: (path: string) => boolean): Promise<void> {
  // A rule with "!" may keep a file of an ignored directory, so directories are always entered.
  const waiting = [''];
  for (let at = waiting.pop(); at !== undefined; at = waiting.pop()) {
    for (const name of readdirSync(join(directory, at)).toSorted()) {
      const path = at === '' ? name : `${at}/${name}`;
      const source = join(directory, path);
      const stat = lstatSync(source);
      if (stat.isDirectory()) waiting.push(path);
      if (isIgnored(path)) continue;
      const mode = stat.mode & 0o7777;
      if (stat.isDirectory()) archive.entry({ name: path, type: 'directory', mode });
      else if (stat.isSymbolicLink()) {
        archive.entry({ name: path, type: 'symlink', linkname: readlinkSync(source), mode });
      } else if (stat.isFile()) {
        await pipeline(createReadStream(source), archive.entry({ name: path, mode, size: stat.size }));
      }
    }
  }
  archive.finalize();
}
