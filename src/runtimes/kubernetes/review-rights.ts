import type { Cluster } from './client.js';
import { ignoreStatus, NOT_FOUND } from './errors.js';

export interface Right {
  group: string;
  resource: string;
  verb: string;
  /** Undefined: of the whole cluster. */
  namespace?: string | undefined;
  name?: string | undefined;
}

/** The rights that the cluster does not grant to the account of the service, in words. */
export async function deniedAmong({ authorization }: Cluster, rights: readonly Right[]): Promise<string[]> {
  const reviews = rights.map(async (right) => {
    const { group, verb, namespace, name } = right;
    const [resource, subresource] = right.resource.split('/');
    const { status } = await authorization.createSelfSubjectAccessReview({
      body: {
        spec: {
          resourceAttributes: {
            ...{ group, verb, resource: resource! },
            ...(subresource === undefined ? {} : { subresource }),
            ...(namespace === undefined ? {} : { namespace }),
            ...(name === undefined ? {} : { name }),
          },
        },
      },
    });
    return status?.allowed ? [] : [`${verb} ${right.resource} in ${namespace ?? 'the cluster'}`];
  });
  return (await Promise.all(reviews)).flat();
}

export async function namespaceExists({ core, namespace }: Cluster): Promise<boolean> {
  return (await core.readNamespace({ name: namespace }).catch(ignoreStatus(NOT_FOUND))) !== undefined;
}
