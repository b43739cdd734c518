/** Runs before the build, with nothing but Node: the dependencies are what may be missing. */
import { existsSync, readFileSync } from 'node:fs';

/**
 * One sentence when the packages in node_modules are not those of package-lock.json; undefined when they are.
 * `root`: the URL of the folder of package.json.
 */
export function findStale(root) {
  const wanted = packagesOf(new URL('package-lock.json', root));
  // A published package has no lock file: npm installed its dependencies with it.
  if (wanted === undefined) return undefined;
  const installed = packagesOf(new URL('node_modules/.package-lock.json', root));
  if (installed === undefined) return 'the dependencies are not installed: run "npm install"';
  for (const [path, { version, optional }] of Object.entries(wanted)) {
    const found = installed[path]?.version;
    // Optional packages may be of other platforms.
    if (path === '' || found === version || (found === undefined && optional)) continue;
    const name = path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length);
    const state = found === undefined ? 'is not installed' : `is installed in version ${found}`;
    return `${name} ${version} is needed and ${state}: run "npm install"`;
  }
  return undefined;
}

function packagesOf(file) {
  return existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')).packages : undefined;
}
