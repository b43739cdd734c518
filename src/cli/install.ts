import type { Command } from 'commander';
import { spawnSync } from 'node:child_process';
import { join, resolve } from 'node:path';
import type { Config } from '../config/options.js';
import { engineNamed, ENGINES } from '../engines/register.js';
import { ExplainedError } from '../lib/explained-error.js';
import { PACKAGE_ROOT } from '../lib/package-root.js';
import { print } from './command.js';
import { withConfig } from './config-options.js';
import { filesOf, removeFiles, writeFiles, type Outcome, type Target } from './install-files.js';
import { ENVIRONMENT_FILE, type UnitOptions } from './install-unit.js';
import { common, OperatorCommand } from './operator-command.js';
import { json } from './options.js';

const DEFAULT_DATA_DIR = '/var/lib/sandkeep';

interface InstallOptions extends Target, Partial<Pick<Config, 'runtime' | 'dataDir' | 'databaseUrl'>> {
  systemd?: true;
  remove?: true;
  dryRun?: true;
  json?: true;
}

export function installCommand(): Command {
  const command = new OperatorCommand('install')
    .description('write the systemd unit of the service, with the least rights that its runtime needs')
    .option('--systemd', 'required, as there is no other kind yet')
    .option('--remove', 'remove the unit; the data and the environment file stay')
    .option('--dry-run', 'print the files, and write nothing')
    .option('--force', 'replace or remove files that were changed by hand', false)
    .option('--root <dir>', 'root directory of the system that gets the files', '/')
    .addOption(common(json()));
  withConfig(command, ['runtime'], { unset: 'none: the command needs it' });
  withConfig(command, ['dataDir'], { unset: DEFAULT_DATA_DIR });
  return withConfig(command, ['databaseUrl']).action((options: InstallOptions) => {
    if (!options.systemd) throw new ExplainedError('name the kind of installation: add --systemd');
    if (options.remove) remove(options);
    else install(options);
  });
}

function install(options: InstallOptions): void {
  const unit = unitOptions(options);
  const { databaseUrl } = options;
  // The output of --dry-run ends up in logs.
  const shownUrl = databaseUrl !== undefined && options.dryRun ? '…' : databaseUrl;
  const files = filesOf(unit, shownUrl);
  if (options.dryRun) {
    const text = files.map((file) => `# ${file.path}, mode ${modeText(file.mode)}\n${file.text}`).join('\n');
    print(
      options,
      { files: files.map(({ path, mode, text }) => ({ path, mode: modeText(mode), text })) },
      text.trimEnd(),
    );
    return;
  }
  const outcomes = writeFiles(files, options);
  const isFirst = outcomes.some(([path, outcome]) => path !== ENVIRONMENT_FILE && outcome === 'written');
  const next = isFirst
    ? [
        ...(unit.runtime.unitRights ? [] : ['systemd-sysusers']),
        'systemctl daemon-reload',
        'systemctl enable sandkeep',
        'systemctl restart sandkeep',
        'journalctl -u sandkeep -o cat | grep skp_     # the key of the first start',
      ]
    : [];
  report(options, outcomes, next);
}

function remove(options: InstallOptions): void {
  if (options.dryRun) throw new ExplainedError('--dry-run does not go with --remove');
  if (options.root === '/' && isActive()) {
    throw new ExplainedError(
      'the service runs: run "systemctl disable --now sandkeep", then repeat the command',
    );
  }
  report(options, removeFiles(options), ['systemctl daemon-reload']);
}

function unitOptions({ runtime, dataDir = DEFAULT_DATA_DIR }: InstallOptions): UnitOptions {
  const known = engineNamed(runtime ?? '');
  if (known === undefined) {
    const names = ENGINES.map(({ name }) => name);
    throw new ExplainedError(
      `the rights of the unit depend on the runtime: name one with --runtime ${names.join(', --runtime ')}`,
    );
  }
  if (/[/\\]_npx[/\\]/.test(PACKAGE_ROOT)) {
    throw new ExplainedError(
      `${PACKAGE_ROOT} is the cache of npx, which npm empties: run "npm install --global sandkeep", then "sandkeep install"`,
    );
  }
  if (!known.unitRights && [process.execPath, PACKAGE_ROOT].some((path) => path.startsWith('/root/'))) {
    throw new ExplainedError(
      `the user of the service cannot read ${PACKAGE_ROOT}: install Node and Sandkeep for all users ("npm install --global sandkeep"), outside /root`,
    );
  }
  return {
    runtime: known,
    dataDir: resolve(dataDir),
    node: process.execPath,
    program: join(PACKAGE_ROOT, 'bin', 'sandkeep'),
  };
}

function isActive(): boolean {
  return spawnSync('systemctl', ['is-active', '--quiet', 'sandkeep.service']).status === 0;
}

function report(
  options: InstallOptions,
  outcomes: readonly [string, Outcome][],
  next: readonly string[],
): void {
  const files = outcomes.map(([path, outcome]) => ({ path, outcome }));
  const lines = files.map(({ path, outcome }) => `${outcome.padEnd(9)} ${path}`);
  const commands = next.length === 0 ? [] : ['', 'Next, as root:', ...next.map((line) => `  ${line}`)];
  print(options, { files, next }, [...lines, ...commands].join('\n'));
}

function modeText(mode: number): string {
  return `0${mode.toString(8)}`;
}
