import { execFile } from 'node:child_process';
import { hash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, readFileSync, symlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { CACHE, installOnce, reasonOf, type Installed } from './clients-install.js';

const execute = promisify(execFile);
const TIMEOUT_MS = 500_000;
const CLIENTS = join(PACKAGE_ROOT, 'clients');
const TYPESCRIPT = join(CLIENTS, 'typescript');
const PYTHON = join(CLIENTS, 'python');
const nameOf = (prefix: string, file: string) =>
  `${prefix}-${hash('sha256', readFileSync(file)).slice(0, 12)}`;

/** The packages that build the TypeScript client. `modules`: their folder. */
export async function installTypeScriptTools(): Promise<Installed<{ modules: string }>> {
  return installOnce(nameOf('client-typescript', join(TYPESCRIPT, 'package-lock.json')), async (folder) => {
    for (const name of ['package.json', 'package-lock.json'])
      cpSync(join(TYPESCRIPT, name), join(folder, name));
    const flags = ['--ignore-scripts', '--no-audit', '--no-fund', '--fetch-retries=1'];
    await execute('npm', ['ci', '--prefix', folder, ...flags], { cwd: folder, timeout: TIMEOUT_MS });
  }).then(
    (folder) => ({ modules: join(folder, 'node_modules') }),
    (error: Error) => ({
      missing: `npm cannot install the packages of clients/typescript: ${reasonOf(error)}`,
    }),
  );
}

/** A Python environment with the generator and what the client needs. `python`: its interpreter. */
export async function installPythonTools(): Promise<Installed<{ python: string }>> {
  const requirements = join(PYTHON, 'requirements.txt');
  const folder = join(CACHE, nameOf('client-python', requirements));
  const python = join(folder, 'bin/python3');
  const flags = ['--quiet', '--disable-pip-version-check', '--retries', '1'];
  try {
    // An environment cannot be moved after its creation, so a mark tells whether it is whole.
    if (!existsSync(join(folder, 'whole'))) {
      await execute('python3', ['-m', 'venv', '--without-pip', '--clear', folder], { timeout: TIMEOUT_MS });
      const site = (
        await execute(python, ['-c', 'import site; print(site.getsitepackages()[0])'])
      ).stdout.trim();
      await execute('python3', ['-m', 'pip', 'install', ...flags, '--target', site, '-r', requirements], {
        timeout: TIMEOUT_MS,
      });
      mkdirSync(join(folder, 'whole'));
    }
    return { python };
  } catch (error) {
    return { missing: `pip cannot install the packages of clients/python: ${reasonOf(error as Error)}` };
  }
}

/** Builds the TypeScript client below `directory`, and returns a folder whose programs can import it. */
export async function buildTypeScriptClient(directory: string, modules: string): Promise<string> {
  cpSync(join(PACKAGE_ROOT, 'openapi.json'), join(directory, 'openapi.json'));
  const client = join(directory, 'clients/typescript');
  for (const name of ['package.json', 'tsconfig.json', 'generate.mjs', 'src/index.ts']) {
    cpSync(join(TYPESCRIPT, name), join(client, name));
  }
  symlinkSync(modules, join(client, 'node_modules'));
  await execute('npm', ['run', '--silent', 'build'], { cwd: client, timeout: TIMEOUT_MS });
  const program = join(directory, 'program');
  const link = join(program, 'node_modules/@sandkeep/client');
  mkdirSync(dirname(link), { recursive: true });
  symlinkSync(client, link);
  return program;
}

/** Compiles a program against the built client with its own compiler. An error of types throws. */
export async function compileProgram(folder: string, file: string, modules: string): Promise<void> {
  const flags = ['--target', 'es2022', '--module', 'nodenext', '--strict', '--lib', 'es2023,dom'];
  const compiler = join(modules, 'typescript/bin/tsc');
  await execute(process.execPath, [compiler, ...flags, file], { cwd: folder, timeout: TIMEOUT_MS }).catch(
    // The compiler writes its errors to the standard output.
    (error: Error & { stdout?: string }) => Promise.reject(new Error(error.stdout, { cause: error })),
  );
}

/** Returns the reports of the linters about openapi.json, a line each. */
export async function lintDescription(modules: string): Promise<string[]> {
  const file = join(PACKAGE_ROOT, 'openapi.json');
  const lint = async (program: string, args: string[]) =>
    execute(join(modules, '.bin', program), ['lint', ...args, file], { timeout: TIMEOUT_MS }).then(
      ({ stdout }) => stdout,
      // A fault ends the program with 1.
      (error: Error & { stdout?: string }) => error.stdout ?? '',
    );
  const redocly = await lint('redocly', ['--config', join(CLIENTS, 'redocly.yaml'), '--format', 'json']);
  const spectral = await lint('spectral', [
    '--quiet',
    '--ruleset',
    join(CLIENTS, 'spectral.yaml'),
    '--format',
    'json',
  ]);
  const problems = [
    ...(JSON.parse(redocly) as { problems: { ruleId: string; message: string }[] }).problems,
    ...(JSON.parse(spectral) as { code: string; message: string }[]),
  ];
  return problems.map(
    (problem) => `${'code' in problem ? problem.code : problem.ruleId}: ${problem.message}`,
  );
}

/** Builds the Python client, and returns the value of PYTHONPATH with which programs can import it. */
export async function buildPythonClient(directory: string, python: string): Promise<string> {
  const out = join(directory, 'python');
  await execute('bash', [join(PYTHON, 'build.sh'), out], {
    env: { ...process.env, PATH: `${dirname(python)}:${process.env['PATH']}` },
    timeout: TIMEOUT_MS,
  });
  return out;
}
