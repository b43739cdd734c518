import type { KubernetesObject } from '@kubernetes/client-node';
import type { Run } from '../../engine/runtime.js';
import { CONFLICT, FORBIDDEN, ignoreStatus, NOT_FOUND } from './errors.js';
import { podName, type Place } from './names.js';
import type { Namespaces } from './namespaces.js';

const AT_ONCE = 16;

/** One kind of object that runs have beside their Pods, under the same names. */
interface Kind {
  list(namespace: string): Promise<{ items: KubernetesObject[] }>;
  remove(place: Place): Promise<unknown>;
}

/** They exist from before the Pod until it needs them no longer. */
export class RunObjects {
  /** Their namespaces, by name. */
  private held = new Map<string, string>();
  private readonly making = new Set<string>();

  constructor(
    private readonly namespaces: Namespaces,
    private readonly kind: Kind,
  ) {}

  /** Finds those that another process left. */
  async takeOver(): Promise<void> {
    const held = new Map<string, string>();
    const namespaces = await this.namespaces.all();
    for (let from = 0; from < namespaces.length; from += AT_ONCE) {
      const lists = namespaces.slice(from, from + AT_ONCE).map(async (namespace) => {
        // Before it has rights in a namespace of an organization, the service creates nothing in it.
        const own = this.namespaces.areApart ? [FORBIDDEN] : [];
        const list = await this.kind.list(namespace).catch(ignoreStatus(...own, NOT_FOUND));
        for (const { metadata } of list?.items ?? []) if (metadata?.name) held.set(metadata.name, namespace);
      });
      await Promise.all(lists);
    }
    this.held = held;
  }

  /** `startPod` resolves when the Pod is in the list. */
  async around<T>(
    { orgId, runId }: Run,
    create: (place: Place) => Promise<unknown>,
    startPod: () => Promise<T>,
  ): Promise<T> {
    const place = { name: podName(runId), namespace: this.namespaces.of(orgId) };
    this.making.add(place.name);
    this.held.set(place.name, place.namespace);
    try {
      await this.namespaces.whenSettled(place.namespace, async () =>
        create(place).catch(ignoreStatus(CONFLICT)),
      );
      return await startPod();
    } finally {
      this.making.delete(place.name);
    }
  }

  /** `isNeeded`: by the Pod of this name. */
  async sweep(isNeeded: (name: string) => boolean): Promise<void> {
    for (const [name, namespace] of this.held) {
      if (this.making.has(name) || isNeeded(name)) continue;
      await this.kind.remove({ name, namespace }).catch(ignoreStatus(NOT_FOUND));
      this.held.delete(name);
    }
  }
}
