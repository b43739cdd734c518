import type { Logger } from 'pino';
import { ExplainedError } from '../lib/explained-error.js';
import type { Meters } from '../lib/meters.js';
import type { Resources } from '../lib/resources.js';
import { isConfigured, type OtlpOptions } from './endpoints.js';
import type { Telemetry } from './open-telemetry.js';

/** Loads the packages of OpenTelemetry where a collector is configured. Throws ExplainedError without them. */
export async function openConfigured(options: OtlpOptions, meters: Meters): Promise<Telemetry | undefined> {
  if (!isConfigured(options)) return undefined;
  try {
    const { openTelemetry } = await import('./open-telemetry.js');
    return await openTelemetry(options, meters);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== 'ERR_MODULE_NOT_FOUND') throw cause;
    throw new ExplainedError(
      'the packages of OpenTelemetry are not installed: install Sandkeep without "--omit=optional", or set OTEL_SDK_DISABLED=true',
      { cause },
    );
  }
}

/** Call it before anything else opens: the export closes last, and so has the lines of the whole stop. */
export function superviseExport(telemetry: Telemetry, log: Logger, resources: Resources): void {
  telemetry.onChange((signal, error) => {
    if (error) log.warn({ err: error, signal }, 'the collector does not accept traces or logs');
    else log.info({ signal }, 'the collector accepts traces or logs again');
  });
  resources.add('the export of traces and logs', telemetry.close);
}
