import type { Command } from 'commander';
import { execFile } from 'node:child_process';
import { OPTION_NAMES } from '../config/options.js';
import type { FirstKey } from '../keys/first-key.js';
import { VERSION } from '../lib/version.js';
import { capacityText } from '../engine/machine-capacity.js';
import type { Runtime } from '../engine/runtime.js';
import type { Service } from '../service/start.js';
import type { ServiceOptions } from '../service/startup.js';
import { COMMON_NAMES, databaseCommand, type CommonOptions } from './command.js';
import { withConfig } from './config-options.js';
import { setFlagsFromString } from 'node:v8';

type ServeOptions = ServiceOptions & Pick<CommonOptions, 'json'>;

export function serveCommand(env: NodeJS.ProcessEnv): Command {
  const own = OPTION_NAMES.filter((name) => !COMMON_NAMES.some((common) => common === name));
  return withConfig(databaseCommand('serve'), own)
    .description('run the service: API and worker, with its database unless --database-url names one')
    .option(
      '--change-runtime',
      'serve the runtime of --runtime although sandboxes of another one exist; they stay as they are until theirs is served again',
    )
    .action(async (options: ServeOptions) => {
      limitHeapGrowth();
      const stopped = stopOnSignal();
      const say = options.json ? () => undefined : (text: string) => process.stdout.write(`${text}\n`);
      say(`Sandkeep ${VERSION} is starting`);
      // Loaded on demand: the web framework takes a second.
      const { startService } = await import('../service/start.js');
      const service = await startService(options, (step) => say(`  ${step}`));
      if (service.reload) process.on('SIGHUP', service.reload);
      announce(options, service);
      if (env['NOTIFY_SOCKET'] !== undefined) notifySystemd();
      await stopped;
      await service.stop();
      say('stopped');
      // A leaked timer or socket must not keep the process alive.
      process.exit(0);
    });
}

/**
 * For a unit of type "notify". The program finds the socket of systemd in the environment, and no library is needed.
 */
function notifySystemd(): void {
  execFile('systemd-notify', ['--ready'], (error) => {
    if (error) process.stderr.write(`sandkeep: cannot tell systemd of the start: ${error.message}\n`);
  });
}

/** Resolves at the first SIGTERM or SIGINT; the second ends the process at once. */
function stopOnSignal(): Promise<void> {
  return new Promise((resolve) => {
    let asked = false;
    for (const signal of ['SIGTERM', 'SIGINT'] as const) {
      process.on(signal, () => {
        if (asked) process.exit(1);
        asked = true;
        resolve();
      });
    }
  });
}

function announce({ json, runtime, console: hasConsole }: ServeOptions, service: Service): void {
  const { address, database, firstKey, fallback } = service;
  const reason = service.runtime.engine?.reason ?? null;
  if (json) {
    const first_key = firstKey && { org: firstKey.org, id: firstKey.id, key: firstKey.key };
    const state = { ready: reason === null, ...(reason === null ? {} : { reason }) };
    const capacity = reason === null ? { capacity: capacityOf(service.runtime) } : {};
    const served = {
      address,
      ...(service.metricsAddress === undefined ? {} : { metrics: service.metricsAddress }),
      ...(service.previews === undefined ? {} : { previews: service.previews }),
      runtime: service.runtime.name,
      ...(service.runtime.warnings === undefined ? {} : { warnings: service.runtime.warnings }),
      ...capacity,
      version: VERSION,
      pid: process.pid,
    };
    process.stdout.write(`${JSON.stringify({ ...state, ...served, ...(first_key ? { first_key } : {}) })}\n`);
    return;
  }
  const lines = [
    `Sandkeep ${VERSION} ${reason === null ? 'is ready' : 'answers, but is NOT READY,'} at ${address}`,
    '',
    ...(hasConsole ? [`  console        ${address}/console`] : []),
    `  API reference  ${address}/docs`,
    ...(service.metricsAddress === undefined ? [] : [`  metrics        ${service.metricsAddress}/metrics`]),
    ...(service.previews === undefined ? [] : [`  previews       ${service.previews}`]),
    `  database       ${database}`,
    `  runtime        ${service.runtime.description}`,
    ...(reason === null ? [`  capacity       room for ${capacityText(service.runtime.capacity)}`] : []),
  ];
  for (const warning of service.runtime.warnings ?? []) lines.push('', `  ! ${warning}.`);
  if (fallback !== undefined && runtime === 'auto') {
    lines.push('', `  ! ${fallback}.`, '  ! Sandboxes are SIMULATED: nothing runs. See "sandkeep doctor".');
  }
  if (reason !== null) {
    lines.push(
      '',
      '  ! The service becomes ready by itself when the engine answers. Until then starts wait.',
    );
  }
  if (firstKey) lines.push('', ...welcome(address, firstKey));
  process.stdout.write(`\n${lines.join('\n')}\n\n`);
}

function capacityOf({ capacity: { vcpus, memoryMib, diskMib } }: Runtime): Record<string, number | null> {
  return { vcpus, memory_mib: memoryMib, disk_mib: diskMib };
}

function welcome(address: string, { org, key }: FirstKey): string[] {
  return [
    `  The organization "${org.slug}" was made, with this API key. It is shown only now:`,
    '',
    `  ${key}`,
    '',
    '  Try it:',
    '',
    `  curl -H 'Authorization: Bearer ${key}' ${address}/v1/sandboxes`,
  ];
}

/**
 * Makes V8 collect garbage when the heap has doubled since the last collection; default: up to fourfold. At 1,000
 * connections the service then takes 170 MiB instead of 240, at the same throughput.
 */
function limitHeapGrowth(): void {
  setFlagsFromString('--heap-growing-percent=100');
}
