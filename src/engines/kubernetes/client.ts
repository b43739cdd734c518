import type * as ClientLibrary from '@kubernetes/client-node';
import type {
  AuthorizationV1Api,
  CoordinationV1Api,
  CoreV1Api,
  KubeConfig,
  NetworkingV1Api,
} from '@kubernetes/client-node';
import { existsSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { ExplainedError } from '../../lib/explained-error.js';

export interface ClusterAddress {
  /** Default: the service account of the Pod that the service runs in, else `~/.kube/config`. */
  kubeconfig?: string | undefined;
  context?: string | undefined;
  /** Default: that of the context or of the service account, else `default`. */
  namespace?: string | undefined;
}

type Library = typeof ClientLibrary;

export interface Cluster {
  library: Library;
  config: KubeConfig;
  core: CoreV1Api;
  networking: NetworkingV1Api;
  coordination: CoordinationV1Api;
  authorization: AuthorizationV1Api;
  server: string;
  namespace: string;
}

const LIBRARY = '@kubernetes/client-node';
const ANSWER_TIMEOUT_MS = 30_000;
const SERVICE_ACCOUNT_TOKEN = '/var/run/secrets/kubernetes.io/serviceaccount/token';

/** Throws ExplainedError without the library, or without a usable configuration. */
export async function openCluster(address: ClusterAddress): Promise<Cluster> {
  const library = await loadLibrary();
  const config = readConfig(library, address);
  const cluster = config.getCurrentCluster();
  if (!cluster) throw new ExplainedError(`the kubeconfig names no cluster: choose one of its contexts`);
  const { CoreV1Api, NetworkingV1Api, CoordinationV1Api, AuthorizationV1Api } = library;
  const options = library.createConfiguration({
    baseServer: new library.ServerConfiguration(cluster.server, {}),
    authMethods: { default: config },
    promiseMiddleware: [
      {
        pre: (request) => {
          request.setSignal(AbortSignal.timeout(ANSWER_TIMEOUT_MS));
          return Promise.resolve(request);
        },
        post: (answer) => Promise.resolve(answer),
      },
    ],
  });
  return {
    library,
    config,
    server: cluster.server,
    core: new CoreV1Api(options),
    networking: new NetworkingV1Api(options),
    coordination: new CoordinationV1Api(options),
    authorization: new AuthorizationV1Api(options),
    namespace: address.namespace ?? config.getContextObject(config.currentContext)?.namespace ?? 'default',
  };
}

async function loadLibrary(): Promise<Library> {
  try {
    return await import('@kubernetes/client-node');
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== 'ERR_MODULE_NOT_FOUND') throw cause;
    throw new ExplainedError(
      `the kubernetes runtime needs the package ${LIBRARY}, which is not installed: run "npm install ${LIBRARY}@1.4" in the directory of Sandkeep`,
      { cause },
    );
  }
}

function readConfig(
  { KubeConfig }: Library,
  { kubeconfig, context }: Pick<ClusterAddress, 'kubeconfig' | 'context'>,
): KubeConfig {
  const config = new KubeConfig();
  const file = kubeconfig ?? join(homedir(), '.kube', 'config');
  if (kubeconfig === undefined && context === undefined && existsSync(SERVICE_ACCOUNT_TOKEN)) {
    config.loadFromCluster();
    return config;
  }
  try {
    config.loadFromFile(file);
  } catch (cause) {
    throw new ExplainedError(
      `cannot read the kubeconfig ${file} (${(cause as Error).message}): name another with --kubeconfig`,
      { cause },
    );
  }
  if (context === undefined) return config;
  const names = config.getContexts().map(({ name }) => name);
  if (!names.includes(context)) {
    throw new ExplainedError(
      `the kubeconfig ${file} has no context "${context}": name one of ${names.join(', ')} with --kubernetes-context`,
    );
  }
  config.setCurrentContext(context);
  return config;
}
