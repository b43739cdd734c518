import { Command } from 'commander';
import { backupCommand } from './cli/backup.js';
import { budgetsCommand } from './cli/budgets.js';
import { applyConfig } from './cli/config-options.js';
import { configCommand } from './cli/config.js';
import { databaseCommands } from './cli/database.js';
import { doctorCommand } from './cli/doctor.js';
import { eventsCommand } from './cli/events.js';
import { imagesCommand } from './cli/images.js';
import { importCommand } from './cli/import.js';
import { installCommand } from './cli/install.js';
import { keyCommand } from './cli/key.js';
import { kubernetesCommand } from './cli/kubernetes.js';
import { loginCommand } from './cli/login.js';
import { logoutCommand } from './cli/logout.js';
import { mcpCommand } from './cli/mcp.js';
import { memberCommand } from './cli/member.js';
import { migrateCommand } from './cli/migrate.js';
import { orgCommand } from './cli/org.js';
import { pauseCommand, resumeCommand } from './cli/pause.js';
import { forkCommand } from './cli/fork.js';
import { poolsCommand } from './cli/pools.js';
import { snapshotsCommand } from './cli/snapshots.js';
import { portForwardCommand } from './cli/port-forward.js';
import { quotaCommand } from './cli/quota.js';
import { restoreCommand } from './cli/restore.js';
import { networkCommand } from './cli/network.js';
import { secretsCommand } from './cli/secrets.js';
import { serveCommand } from './cli/serve.js';
import { statusCommand } from './cli/status.js';
import { templatesCommand } from './cli/templates.js';
import { uninstallCommand } from './cli/uninstall.js';
import { usageCommand } from './cli/usage.js';
import { webhookCommand } from './cli/webhook.js';
import { workerCommand } from './cli/worker.js';
import { isUnreachable, sqlState } from './db/pool.js';
import { escapeControlsInLines } from './lib/escape-controls.js';
import { ExplainedError } from './lib/explained-error.js';
import { VERSION } from './lib/version.js';

/** The command line: a file in `cli/` for each command, an entry in `config/options.ts` for each option. */
export function makeProgram(env: NodeJS.ProcessEnv): Command {
  return new Command('sandkeep')
    .description('The self-hosted control plane for sandboxes and volumes.')
    .version(VERSION)
    .showHelpAfterError('(--help says more)')
    .hook('preAction', (_, command) => applyConfig(command, env))
    .addCommand(serveCommand(env))
    .addCommand(configCommand())
    .addCommand(doctorCommand())
    .addCommand(statusCommand())
    .addCommand(migrateCommand())
    .addCommand(orgCommand())
    .addCommand(keyCommand())
    .addCommand(quotaCommand())
    .addCommand(usageCommand())
    .addCommand(workerCommand())
    .addCommand(loginCommand(env))
    .addCommand(logoutCommand(env))
    .addCommand(pauseCommand(env))
    .addCommand(resumeCommand(env))
    .addCommand(portForwardCommand(env))
    .addCommand(mcpCommand(env))
    .addCommand(poolsCommand(env))
    .addCommand(forkCommand(env))
    .addCommand(templatesCommand(env))
    .addCommand(snapshotsCommand(env))
    .addCommand(budgetsCommand(env))
    .addCommand(secretsCommand())
    .addCommand(networkCommand())
    .addCommand(memberCommand())
    .addCommand(eventsCommand())
    .addCommand(webhookCommand())
    .addCommand(importCommand())
    .addCommand(imagesCommand())
    .addCommand(backupCommand())
    .addCommand(restoreCommand())
    .addCommand(installCommand())
    .addCommand(databaseCommands())
    .addCommand(uninstallCommand())
    .addCommand(kubernetesCommand());
}

export async function main(argv: readonly string[], env: NodeJS.ProcessEnv): Promise<void> {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    // A reader such as `head` has closed the pipe.
    if (error.code === 'EPIPE') process.exit(0);
    process.stderr.write(`sandkeep: cannot write the output: ${error.message}\n`);
    process.exit(1);
  });
  try {
    await makeProgram(env).parseAsync([...argv], { from: 'user' });
  } catch (error) {
    process.stderr.write(`sandkeep: ${escapeControlsInLines(explain(error))}\n`);
    process.exit(1);
  }
}

function explain(error: unknown): string {
  if (error instanceof ExplainedError) return error.message;
  const { message, stack, code } = error as NodeJS.ErrnoException;
  if (isUnreachable(error)) return `cannot reach the database: ${message || code}`;
  // Authentication, the name of the database or a missing privilege: PostgreSQL names the fault.
  if (/^(28|3D000|42501)/.test(sqlState(error) ?? '')) return `the database refuses: ${message}`;
  return stack ?? String(error);
}
