import { readdirSync, statSync } from 'node:fs';

/** The folders and files from which `npm run build` makes the program and the console. */
const SOURCES = ['src', 'console', 'scripts', 'tsconfig.json', 'package-lock.json'];
/** The build writes it last. */
const STAMP = 'dist/program.stamp';

/**
 * Whether the program was never built, or a source changed since. Times decide, because reading every source would take longer than
 * the start. A deleted file changes the time of its folder. `root`: the URL of the folder of package.json.
 */
export function isBuildOld(root) {
  const built = statSync(new URL(STAMP, root), { throwIfNoEntry: false })?.mtimeMs;
  return built === undefined || SOURCES.some((source) => newestOf(new URL(source, root)) > built);
}

/** The time of the newest change of a file, or of a folder and its content, in milliseconds. */
function newestOf(place) {
  const found = statSync(place);
  if (!found.isDirectory()) return found.mtimeMs;
  const folder = new URL(`${place.href}/`);
  const names = readdirSync(folder);
  return names.reduce(
    (newest, name) => Math.max(newest, newestOf(new URL(encodeURIComponent(name), folder))),
    found.mtimeMs,
  );
}
