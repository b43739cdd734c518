import type { ServiceContext } from '../context.js';
import { NO_HOST } from '../http/listen.js';
import { TrustedProxies } from '../http/client-address.js';
import { Certificate } from '../http/tls/certificate.js';
import { ExplainedError } from '../lib/explained-error.js';
import { PREVIEW_LIMITS } from '../previews/bounds.js';
import { GrantedAccess } from '../previews/grants/access.js';
import { isLocalDomain, PreviewHosts } from '../previews/host.js';
import { PreviewListener } from '../previews/listener.js';
import { explainDomain, PREVIEW_FLAGS } from '../previews/settings.js';
import { Serving } from '../previews/serve.js';
import { openWaker } from '../previews/wake/preview-waker.js';
import { openPort } from '../sandboxes/ports/open-port.js';
import { explainListenError } from './listening.js';
import type { ServiceOptions, Startup } from './startup.js';

const USUAL_PORT = 8_081;
const HTTPS_PORT = 443;

/** The host names of previews. Undefined: this process serves none. */
export function previewHostsOf(options: ServiceOptions): PreviewHosts | undefined {
  if (options.previewHost === NO_HOST || options.role === 'worker') return undefined;
  const fault = explainDomain(options);
  if (fault !== undefined) throw new ExplainedError(fault);
  const { previewDomain: domain, previewTlsCert: cert, previewPublicPort } = options;
  const isPlain = isLocalDomain(domain) && cert === undefined;
  const isBehindProxy = !isPlain && cert === undefined;
  const publicPort = previewPublicPort ?? (isBehindProxy ? HTTPS_PORT : undefined);
  return new PreviewHosts(domain, isPlain ? 'http' : 'https', publicPort);
}

/** Listens for requests to previews. */
export async function listenForPreviews(
  ctx: ServiceContext,
  hosts: PreviewHosts,
  { options, log, resources }: Startup,
): Promise<void> {
  const certificate = openPreviewCertificate({ options, log, resources });
  const access = new GrantedAccess(ctx);
  resources.add('the grants of previews', () => access.close());
  const { total } = ctx.settings.connections;
  const limits = { total: Math.ceil(total / 2), each: Math.ceil(total / 4) };
  const proxies = new TrustedProxies(ctx.settings.trustedProxies);
  const serving = new Serving({
    log,
    hosts,
    access,
    waker: openWaker(ctx),
    openPort: (place, signal) => openPort(ctx, place, signal),
    proxies,
    limits: PREVIEW_LIMITS,
    meters: ctx.meters,
    pace: ctx.pace,
  });
  const listener = new PreviewListener(
    { log, limits, proxies, certificate },
    {
      request: (request, response) => serving.request(request, response),
      upgrade: (request, socket, head) => serving.upgrade(request, socket, head),
    },
  );
  hosts.listensAt(await listen(listener, options, log));
  resources.add('the previews', async () => {
    await listener.close();
    serving.close();
  });
}

/** The usual port may be taken by another service on the machine, which is no reason to refuse the start. */
async function listen(
  listener: PreviewListener,
  { previewHost: host, previewPort }: ServiceOptions,
  log: Startup['log'],
): Promise<number> {
  try {
    return await listener.listen(host, previewPort ?? USUAL_PORT);
  } catch (error) {
    const place = { host, port: previewPort ?? USUAL_PORT };
    const isTaken = (error as NodeJS.ErrnoException).code === 'EADDRINUSE' && previewPort === undefined;
    if (!isTaken) throw explainListenError(error, place, ['--preview-host', '--preview-port']);
    const port = await listener.listen(host, 0);
    log.warn({ taken: USUAL_PORT, port }, 'the usual port of previews is taken: they listen on a free one');
    return port;
  }
}

function openPreviewCertificate({
  options,
  log,
  resources,
}: Pick<Startup, 'options' | 'log' | 'resources'>): Certificate | undefined {
  const { previewTlsCert: cert, previewTlsKey: key } = options;
  if (cert === undefined && key === undefined) return undefined;
  if (cert === undefined || key === undefined) {
    throw new ExplainedError(
      'TLS of previews needs both files: give --preview-tls-cert and --preview-tls-key',
    );
  }
  const certificate = new Certificate({ cert, key, flags: PREVIEW_FLAGS }, log);
  certificate.watch();
  resources.add('the look at the certificate of previews', async () => Promise.resolve(certificate.close()));
  return certificate;
}
