import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { STORES } from './stores.js';

/** Also authorities that the operator put there without running the program that makes the bundle. */
const ANCHORS = STORES.anchors.map(({ directory }) => directory);
const PEM_NAME = /\.(?:crt|pem)$/;

/** The authorities that the machine of the service trusts, as texts of PEM. */
export async function machineAuthorities(root = '/'): Promise<string[]> {
  const bundles = await Promise.all(STORES.bundles.map((path) => textOf(join(root, path))));
  const found = bundles.find((text) => text !== undefined);
  const local = await Promise.all(ANCHORS.map((directory) => textsBelow(join(root, directory))));
  return [...(found === undefined ? [] : [found]), ...local.flat()];
}

async function textsBelow(directory: string): Promise<string[]> {
  const names = await readdir(directory).catch(() => []);
  const files = names.filter((name) => PEM_NAME.test(name)).map((name) => textOf(join(directory, name)));
  return (await Promise.all(files)).filter((text) => text !== undefined);
}

async function textOf(path: string): Promise<string | undefined> {
  return readFile(path, 'utf8').catch(() => undefined);
}
