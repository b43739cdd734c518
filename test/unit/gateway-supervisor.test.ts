import { randomUUID } from 'node:crypto';
import { expect, onTestFinished, test } from 'vitest';
import type { GatewayServices } from '../../src/engine/definition.js';
import type { StartRefusedError } from '../../src/engine/runtime.js';
import { sleep } from '../../src/lib/sleep.js';
import { GatewaySupervisor } from '../../src/machine-network/gateway/supervisor.js';
import type { GatewayNamespace, LinkedNamespace } from '../../src/machine-network/namespace.js';
import { GATED, runSpecOf } from '../support/run-spec.js';

const REFUSED = 'the gateway of the network does not run on this machine';
const SURROUNDINGS = { hosts: [], resolvers: [], neighbours: [], openableGroups: [] };
const NETWORK: LinkedNamespace = {
  enter: () => Promise.reject(new Error('the namespace is not entered')),
  gateways: [],
  links: ['192.0.2.2/24'],
};
const RUN = {
  orgId: randomUUID(),
  sandboxId: randomUUID(),
  runId: randomUUID(),
  name: 'gated',
  spec: { ...runSpecOf('busybox'), gated: GATED },
  secrets: { values: {}, registry: null },
};

const SERVICES: GatewayServices = {
  authority: () => Promise.reject(new Error('the database is away')),
  secrets: () => Promise.resolve(RUN.secrets),
  specOf: () => Promise.resolve(RUN.spec),
  denied: () => undefined,
  flows: () => undefined,
};

/** Adds a sandbox to a gateway whose namespace `holder` makes. Returns why it is refused, once it is. */
function refusalBy(holder: () => Promise<GatewayNamespace>, mostMs: number) {
  const supervisor = new GatewaySupervisor({
    instanceId: randomUUID(),
    services: SERVICES,
    ask: () => Promise.resolve(undefined),
    resolvers: () => [],
    openableGroups: [],
    holder,
    addresses: () => ({ hosts: [], neighbours: [] }),
    surroundingsOf: () => SURROUNDINGS,
    running: () => Promise.resolve([]),
    ready: { usualMs: 50, mostMs },
  });
  onTestFinished(() => supervisor.close());
  supervisor.start({ valid: true });
  return supervisor.add(RUN, NETWORK, SURROUNDINGS).then(
    () => undefined,
    (error: unknown) => error as StartRefusedError,
  );
}

/** A namespace that is never made, but for a failure. */
function neverMade() {
  let fail: (error: Error) => void = () => undefined;
  const made = new Promise<GatewayNamespace>((_, reject) => (fail = reject));
  return { holder: () => made, fail };
}

test('a start waits for a gateway that a busy machine starts late', async () => {
  const { holder, fail } = neverMade();
  let refusal: StartRefusedError | undefined;
  const refused = refusalBy(holder, 60_000).then((error) => (refusal = error));
  await sleep(500);
  expect(refusal).toBeUndefined();
  fail(new Error('there is no room'));
  await refused;
  expect(refusal!.message).toContain(REFUSED);
  expect(refusal!.cause).toBe('there is no room');
});

test('a start waits a bounded time for a gateway whose start never ends', async () => {
  const { holder, fail } = neverMade();
  const refusal = await refusalBy(holder, 200);
  expect(refusal?.message).toContain(REFUSED);
  fail(new Error('the test is over'));
});
