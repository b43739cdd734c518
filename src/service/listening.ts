import type { ServiceContext } from '../context.js';
import { closeOthers, NO_HOST, type Place } from '../http/listen.js';
import type { App } from '../http/route.js';
import { Certificate } from '../http/tls/certificate.js';
import { readAuthorities } from '../http/tls/key-pair.js';
import { ExplainedError } from '../lib/explained-error.js';
import type { Metrics } from '../metrics/open-metrics.js';
import type { ServiceOptions, Startup } from './startup.js';

/** Orchestrators commonly kill a process 30 seconds after they ask it to stop. */
const REQUESTS_TIMEOUT_MS = 8_000;

export function openCertificate({ options, log, resources }: Startup): Certificate | undefined {
  const { tlsCert: cert, tlsKey: key } = options;
  if (cert === undefined && key === undefined) return undefined;
  if (cert === undefined || key === undefined) {
    throw new ExplainedError('TLS needs both files: give --tls-cert and --tls-key');
  }
  const certificate = new Certificate({ cert, key }, log);
  certificate.watch();
  resources.add('the look at the certificate', async () => Promise.resolve(certificate.close()));
  return certificate;
}

export function readForwardCa({ forwardCa }: ServiceOptions): string[] | undefined {
  return forwardCa === undefined ? undefined : readAuthorities(forwardCa, '--forward-ca');
}

export function placeOf({ host, port, listenUnix: path, listenUnixMode, tlsCert }: ServiceOptions): Place {
  if (host === NO_HOST && path === undefined) {
    throw new ExplainedError(`--host ${NO_HOST} needs the path of a socket: give --listen-unix`);
  }
  const unix = path === undefined ? undefined : { path, mode: parseInt(listenUnixMode, 8) };
  return { host, port, unix, isTls: tlsCert !== undefined };
}

export async function listenForScrapes(
  metrics: Metrics,
  ctx: ServiceContext,
  { options, resources }: Startup,
): Promise<string> {
  const { serveMetrics } = await import('../metrics/serve.js');
  const place = { host: options.metricsHost, port: options.metricsPort! };
  const { url, close } = await serveMetrics(metrics, ctx, place).catch((cause: unknown) => {
    throw explainListenError(cause, place, ['--metrics-host', '--metrics-port']);
  });
  resources.add('the metrics', close);
  return url;
}

export function explainListenError(
  cause: unknown,
  { host, port }: { host: string; port: number },
  [hostFlag, portFlag]: readonly [string, string],
): unknown {
  switch ((cause as NodeJS.ErrnoException).code) {
    case 'EADDRINUSE':
      return new ExplainedError(
        `port ${port} on ${host} is taken: choose another with ${portFlag}, or 0 for a free one`,
        { cause },
      );
    case 'EACCES':
      return new ExplainedError(`this user may not open port ${port} on ${host}: choose a port above 1023`, {
        cause,
      });
    case 'EADDRNOTAVAIL':
    case 'ENOTFOUND':
      return new ExplainedError(
        `${host} is not an address of this machine: choose another with ${hostFlag}`,
        {
          cause,
        },
      );
    default:
      return cause;
  }
}

/** Waits for the open requests, and cuts off those that take too long. */
export async function closeApp(app: App): Promise<void> {
  const cut = setTimeout(() => app.server.closeAllConnections(), REQUESTS_TIMEOUT_MS);
  await app.close();
  await closeOthers(app);
  clearTimeout(cut);
}
