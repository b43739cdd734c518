import type { Client } from './client.js';
import { destroyAll, onDocker } from './docker-service.js';
import { IMAGE, makeImage } from './docker.js';
import { until } from './polling.js';
import { smallRequest } from './sandbox-requests.js';
import { startTestService, type TestOptions, type TestService } from './service.js';

/** A service with containers, for the tests of what happens inside them. */
export interface Inside {
  service: TestService;
  client: Client;
  /** Starts a sandbox that only sleeps, and returns its id. */
  start(name: string, part?: object, owner?: Client): Promise<string>;
  /** The payload of the latest end of a session in a sandbox with this reason. Waits until there is one. */
  endOf(sandboxId: string, reason: string): Promise<any>;
  close(): Promise<void>;
}

export async function startInside(options: TestOptions = {}): Promise<Inside> {
  makeImage();
  const service = await startTestService({
    ...onDocker({ capacity: { vcpus: 100, memoryMib: 100_000 } }),
    ...options,
    settings: { stopGraceMs: 0, ...options.settings },
  });
  const client = await service.newOrg();
  const owners = new Set([client]);
  return {
    service,
    client,
    async start(name, part = {}, owner = client) {
      owners.add(owner);
      const request = smallRequest(name, {
        image: { type: 'oci', reference: IMAGE },
        pull_policy: 'never',
        runtime: { cmd: ['sleep', '600'] },
        ...part,
      });
      const { body, text } = await owner.post('/v1/sandboxes', request, { start: true, wait_for: 'running' });
      if (body.status !== 'running') throw new Error(`the sandbox does not run: ${text}`);
      return body.id;
    },
    async endOf(sandboxId, reason) {
      const query = { resource_id: sandboxId, event_type: 'sandbox_session_ended', limit: 100 };
      return until(
        async () => {
          const { body } = await client.get('/v1/events', query);
          return body.data
            .map(({ payload }: any) => payload)
            .find((payload: any) => payload.reason === reason);
        },
        (found) => found !== undefined,
        30_000,
      );
    },
    async close() {
      await destroyAll(service, ...owners);
      await service.close();
    },
  };
}
