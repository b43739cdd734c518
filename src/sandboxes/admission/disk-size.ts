import type { Runtime } from '../../engine/runtime.js';
import type { Limits } from '../../quotas/limits.js';
import { refuseUnlimitedDisk } from '../../quotas/size-limits.js';
import type { CreateSandboxRequest } from '../../spec/specification.js';

/** Under a disk limit, a sandbox without a disk size gets the largest allowed one. */
export function withDisk<Request extends Pick<CreateSandboxRequest, 'resources'>>(
  request: Request,
  { max_disk_size_mib_per_sandbox: limit }: Limits,
  { capabilities, name }: Pick<Runtime, 'capabilities' | 'name'>,
): Request {
  if (limit === null || request.resources?.disk_size_mib != null) return request;
  if (limit === 0 || !capabilities.has('disk_size')) refuseUnlimitedDisk(limit, name);
  return { ...request, resources: { ...request.resources, disk_size_mib: limit } };
}
