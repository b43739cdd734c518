import type { V1Pod } from '@kubernetes/client-node';
import type { Cluster } from './client.js';
import { CONFLICT, ignoreStatus, NOT_FOUND } from './errors.js';
import { hasEnded } from './holdings.js';
import { FINALIZER, placeOf } from './names.js';
import type { Nodes } from './nodes.js';
import { stateOf, type PodState } from './pod-state.js';
import type { WatchCache } from './watch-cache.js';

/** The API server reports an end late, and a node that is lost later still. */
const STOP_LIMIT_MS = 120_000;
const REMOVE_LIMIT_MS = 30_000;
/** Zero would remove the object before the node has ended the processes. */
export const KILL_SECS = 1;
/** A lost node changes no Pod. */
const LOOK_EVERY_MS = 2_000;

/** Ends Pods, and removes them when their end is recorded. */
export class PodEnds {
  constructor(
    private readonly cluster: Cluster,
    private readonly pods: WatchCache<V1Pod>,
    private readonly nodes: Nodes,
  ) {}

  async stateOf(pod: V1Pod): Promise<PodState> {
    return stateOf(pod, await this.nodes.lossOf(pod.spec?.nodeName));
  }

  /** Deletes a Pod, and waits until nothing of it runs. */
  async end(pod: V1Pod, graceSecs: number): Promise<void> {
    const { name } = placeOf(pod);
    if (hasEnded(await this.stateOf(pod))) return;
    await this.cluster.core
      .deleteNamespacedPod({ ...placeOf(pod), gracePeriodSeconds: graceSecs })
      .catch(ignoreStatus(NOT_FOUND, CONFLICT));
    const deadline = performance.now() + STOP_LIMIT_MS + graceSecs * 1_000;
    while (performance.now() < deadline) {
      const now = this.pods.get(name);
      if (!now || hasEnded(await this.stateOf(now))) return;
      const version = now.metadata?.resourceVersion;
      await this.pods.until(name, (seen) => seen?.metadata?.resourceVersion !== version, LOOK_EVERY_MS);
    }
    throw new Error(`the Pod ${name} has not ended in time`);
  }

  /** Removes the Pod of an earlier run. */
  async removeEnded(pod: V1Pod): Promise<void> {
    if (!hasEnded(await this.stateOf(pod)))
      throw new Error(`the Pod ${pod.metadata!.name} of an earlier run has not ended`);
    await this.remove(pod);
  }

  /** Removes the record of a Pod that has ended. */
  async remove(pod: V1Pod): Promise<void> {
    const place = placeOf(pod);
    await this.dropFinalizer(place.name);
    await this.cluster.core
      .deleteNamespacedPod({ ...place, gracePeriodSeconds: 0 })
      .catch(ignoreStatus(NOT_FOUND));
    const isGone = await this.pods.until(place.name, (seen) => seen === undefined, REMOVE_LIMIT_MS);
    if (!isGone) throw new Error(`the Pod ${place.name} was not removed in time`);
  }

  async dropFinalizer(name: string): Promise<void> {
    const { core, library } = this.cluster;
    const pod = this.pods.get(name);
    const index = pod?.metadata?.finalizers?.indexOf(FINALIZER) ?? -1;
    if (!pod || index === -1) return;
    const path = `/metadata/finalizers/${index}`;
    await core
      .patchNamespacedPod(
        {
          ...placeOf(pod),
          body: [
            { op: 'test', path, value: FINALIZER },
            { op: 'remove', path },
          ],
        },
        library.setHeaderOptions('Content-Type', library.PatchStrategy.JsonPatch),
      )
      .catch(ignoreStatus(NOT_FOUND));
  }
}
