import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { INSPECTOR_VERSION, VERSIONS } from '../clients/versions.js';

/**
 * An installed client, or the reason why it is missing. The packages have 90 MB, so their folders are kept between
 * test runs.
 */
export type Installed<T> =
  (T & { missing?: undefined }) | ({ missing: string } & { [K in keyof T]?: undefined });

export const CACHE = join(PACKAGE_ROOT, 'node_modules', '.cache');
const TIMEOUT_MS = 500_000;
/** Runs the newest versions of the registries in place of the pinned ones. Their folders are of one day. */
export const isNewest = process.env['SANDKEEP_TEST_CLIENTS_NEWEST'] !== undefined;
const TODAY = new Date().toISOString().slice(0, 10);
const execute = promisify(execFile);

/** The packages with the binaries, by platform. */
const PLATFORMS: Readonly<Record<string, string>> = {
  'linux-x64': 'linux-x64-gnu',
  'linux-arm64': 'linux-arm64-gnu',
  'darwin-arm64': 'darwin-arm64',
};

/** The CLI and the Node SDK. `folder`: where programs find the SDK. */
export async function installFromNpm(): Promise<Installed<{ msb: string; folder: string }>> {
  const platform = PLATFORMS[`${process.platform}-${process.arch}`];
  if (platform === undefined) return { missing: `there are none for ${process.platform} ${process.arch}` };
  const binaries = `@superradcompany/microsandbox-${platform}`;
  // npm omits the optional package of the platform under Node versions below 22, so it is named here.
  const packages = ['microsandbox', binaries].map((name) => `${name}@${isNewest ? 'latest' : VERSIONS.npm}`);
  const flags = ['--ignore-scripts', '--no-save', '--no-audit', '--no-fund'];
  const retries = ['--fetch-retries=1', '--fetch-retry-mintimeout=1000'];
  return installOnce(`microsandbox-${isNewest ? TODAY : VERSIONS.npm}`, async (folder) => {
    await execute('npm', ['install', '--prefix', folder, ...flags, ...retries, ...packages], {
      cwd: folder,
      timeout: TIMEOUT_MS,
    });
  }).then(
    (folder) => ({ folder, msb: join(folder, 'node_modules', binaries, 'bin', 'msb') }),
    (error: Error) => ({ missing: `npm cannot install ${packages.join(' and ')}: ${reasonOf(error)}` }),
  );
}

/** The inspector of the Model Context Protocol. `program`: run it with Node. */
export async function installInspector(): Promise<Installed<{ program: string }>> {
  const name = `@modelcontextprotocol/inspector@${isNewest ? 'latest' : INSPECTOR_VERSION}`;
  const flags = ['--ignore-scripts', '--no-save', '--no-audit', '--no-fund', '--fetch-retries=1'];
  return installOnce(`mcp-inspector-${isNewest ? TODAY : INSPECTOR_VERSION}`, async (folder) => {
    await execute('npm', ['install', '--prefix', folder, ...flags, name], {
      cwd: folder,
      timeout: TIMEOUT_MS,
    });
  }).then(
    (folder) => ({ program: join(folder, 'node_modules', '.bin', 'mcp-inspector') }),
    (error: Error) => ({ missing: `npm cannot install ${name}: ${reasonOf(error)}` }),
  );
}

/** The Python SDK and the CLI in its package. `folder`: the value of PYTHONPATH. */
export async function installFromPyPI(): Promise<Installed<{ python: string; folder: string; msb: string }>> {
  const wanted = isNewest ? 'microsandbox' : `microsandbox==${VERSIONS.pypi}`;
  const flags = ['--quiet', '--no-deps', '--disable-pip-version-check', '--retries', '1'];
  try {
    const { stdout } = await execute('python3', ['-c', 'import sys; print(sys.executable)']);
    const python = stdout.trim();
    const folder = await installOnce(
      `microsandbox-python-${isNewest ? TODAY : VERSIONS.pypi}`,
      async (folder) => {
        await execute(python, ['-m', 'pip', 'install', ...flags, '--target', folder, wanted], {
          timeout: TIMEOUT_MS,
        });
      },
    );
    return { python, folder, msb: join(folder, 'microsandbox', '_bundled', 'bin', 'msb') };
  } catch (error) {
    return { missing: `pip cannot install ${wanted}: ${reasonOf(error as Error)}` };
  }
}

/** Returns the folder of that name in the cache, and fills it when it is new. */
export async function installOnce(name: string, install: (folder: string) => Promise<void>): Promise<string> {
  const installed = join(CACHE, name);
  if (existsSync(installed)) return installed;
  mkdirSync(CACHE, { recursive: true });
  const folder = mkdtempSync(join(CACHE, 'installing-'));
  try {
    await install(folder);
    renameSync(folder, installed);
  } catch (error) {
    // Another test file may have finished first.
    if (!existsSync(installed)) throw error;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  return installed;
}

/** The first line of the installer's error. */
export function reasonOf({ message, stderr = '' }: Error & { stderr?: string }): string {
  const lines = stderr.split('\n').map((line) => line.trim());
  return lines.find((line) => /error/i.test(line)) ?? message;
}
