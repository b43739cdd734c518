import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { DockerRuntime } from '../../src/engines/docker/runtime.js';
import { VolumeStore } from '../../src/volumes/storage/store.js';
import { describeDocker, docker, IMAGE, makeImage, SOCKET } from '../support/docker.js';
import { openEngineRelay, type EngineRelay } from '../support/engine-relay.js';
import { until } from '../support/polling.js';

describeDocker('the list of the docker runtime', () => {
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-list-'));
  const socketPath = join(directory, 'engine.sock');
  const instanceId = randomUUID();
  const [sandboxId, otherId, holderId] = [randomUUID(), randomUUID(), randomUUID()];
  const made: string[] = [];
  /** The ids of inspected containers, and the id whose inspection fails. */
  const inspected: string[] = [];
  let broken: string | undefined;
  let relay: EngineRelay;
  let runtime: DockerRuntime;

  beforeAll(async () => {
    makeImage();
    // It fails some requests.
    relay = await openEngineRelay(socketPath, SOCKET, ({ url }, answer) => {
      const id = /\/containers\/([^/]+)\/json/.exec(url!)?.[1];
      if (id === undefined || id === 'json') return;
      inspected.push(id);
      if (id === broken)
        answer.writeHead(500, { 'content-type': 'application/json' }).end('{"message":"layer is gone"}');
    });
    const volumes = new VolumeStore(join(directory, 'volumes'));
    runtime = await DockerRuntime.connect(instanceId, { socketPath, network: 'none', volumes });
    for (const id of [sandboxId, otherId]) {
      const name = `sandkeep-${id}-${randomUUID()}-0`;
      made.push(await startContainer(name, { 'dev.sandkeep.sandbox': id }));
    }
    made.push(await startContainer(`sandkeep-net-${holderId}`, { 'dev.sandkeep.holder-of': holderId }));
  });
  afterAll(async () => {
    for (const id of made) await docker.getContainer(id).remove({ force: true });
    await runtime.close();
    relay.close();
    rmSync(directory, { recursive: true });
  });

  async function startContainer(name: string, labels: Record<string, string>): Promise<string> {
    const container = await docker.createContainer({
      name,
      Image: IMAGE,
      Cmd: ['sleep', '100000'],
      HostConfig: { NetworkMode: 'none' },
      Labels: { ...labels, 'dev.sandkeep.instance': instanceId },
    });
    await container.start();
    return container.id;
  }
  const states = async () =>
    Object.fromEntries((await runtime.list()).map((holding) => [holding.sandboxId, holding.state]));
  /** A look gives an inspection one second. On a busy machine a single look may miss the state of a container. */
  const expectStates = async (wanted: Record<string, string>) => {
    const isWanted = (found: Record<string, string>) =>
      Object.entries(wanted).every(([id, state]) => found[id] === state);
    expect(await until(states, isWanted)).toMatchObject(wanted);
  };

  test('inspects each sandbox once until it changes, and never the holders of networks', async () => {
    inspected.length = 0;
    await expectStates({ [sandboxId]: 'running', [otherId]: 'running' });
    expect(new Set(inspected)).toEqual(new Set(made.slice(0, 2)));
    inspected.length = 0;
    for (let look = 0; look < 3; look += 1) await runtime.list();
    expect(inspected).toEqual([]);
  });

  test('keeps the last known state of a container that the engine cannot inspect, and updates the others', async () => {
    await expectStates({ [sandboxId]: 'running', [otherId]: 'running' });
    broken = made[0];
    // The engine notices the end of a killed process later.
    for (const name of made.slice(0, 2)) {
      await docker.getContainer(name).kill();
      await docker.getContainer(name).wait();
    }
    await expectStates({ [sandboxId]: 'running', [otherId]: 'exited' });
    broken = undefined;
    await expectStates({ [sandboxId]: 'exited', [otherId]: 'exited' });
  });

  test('lists a container that it has never inspected as unknown, and the others as they are', async () => {
    const fresh = randomUUID();
    made.push(await startContainer(`sandkeep-${fresh}-${randomUUID()}-0`, { 'dev.sandkeep.sandbox': fresh }));
    broken = made.at(-1);
    await expectStates({ [fresh]: 'unknown', [otherId]: 'exited' });
    broken = undefined;
    await expectStates({ [fresh]: 'running' });
  });
});
