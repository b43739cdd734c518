import type { V1RoleBinding } from '@kubernetes/client-node';
import type { Cluster } from './client.js';
import { FORBIDDEN, ignoreStatus, NOT_FOUND } from './errors.js';
import { ORGANIZATION_BINDING } from './names.js';

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
            group,
            verb,
            resource: resource!,
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

/**
 * The binding that is copied to the namespaces of organizations. Undefined: there is none that the account may read.
 */
export async function readOrganizationBinding({
  library,
  config,
  namespace,
}: Cluster): Promise<V1RoleBinding | undefined> {
  return config
    .makeApiClient(library.RbacAuthorizationV1Api)
    .readNamespacedRoleBinding({ name: ORGANIZATION_BINDING, namespace })
    .catch(ignoreStatus(NOT_FOUND, FORBIDDEN));
}

export async function namespaceExists({ core, namespace }: Cluster): Promise<boolean> {
  return (await core.readNamespace({ name: namespace }).catch(ignoreStatus(NOT_FOUND))) !== undefined;
}
