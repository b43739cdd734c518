import { describe, expect, test } from 'vitest';
import { copiedSpecs } from '../../src/snapshots/forks/copied-spec.js';
import type { RunMount } from '../../src/spec/run-spec.js';
import { SPECIFICATION, type CreateSandboxRequest } from '../../src/spec/specification.js';
import { newId } from '../../src/lib/uuid.js';
import { fullRequest } from '../support/sandbox-requests.js';

const VOLUMES = { named: new Map([['data', newId()]]), host: newId() };
const LABELS = { team: 'other' };
const FORK_ID = newId();

/** Every field, also those that a copy does not take over. */
function source(): CreateSandboxRequest {
  const full = fullRequest('source', 'data');
  return {
    ...full,
    runtime: { ...full.runtime, hostname: 'own.example.com' },
    env: [...full.env, { key: 'HIDDEN', value: 'canary', secret: true }],
    network: {
      ...full.network,
      interface: { mac: [2, 0, 0, 0, 0, 1], mtu: 1400, ipv4_address: '10.0.0.9' },
      ports: [{ guest_port: 80, host_port: 20_000 }],
      record: true,
    },
  } as unknown as CreateSandboxRequest;
}

/** The request of a caller that gets such a copy by a create. */
function equivalent({ inheritsSecrets }: { inheritsSecrets: boolean }): CreateSandboxRequest {
  const { patches: _, registry: __, ...request } = source();
  const { ports: ___, interface: ____, secrets, ...network } = request.network!;
  const env = request.env as { key: string; value: string; secret?: boolean }[];
  return {
    ...request,
    labels: LABELS,
    runtime: { ...request.runtime, hostname: null },
    env: inheritsSecrets ? env : env.filter(({ secret }) => secret !== true),
    network: { ...network, interface: { mtu: 1400 }, ...(inheritsSecrets ? { secrets } : {}) },
  };
}

describe.each([true, false])('a copy that inherits secrets: %s', (inheritsSecrets) => {
  const options = (mounts: RunMount[]) => ({ forkId: FORK_ID, labels: LABELS, mounts, inheritsSecrets });

  test('has the specification of a create without the identity of the source', () => {
    const { spec, runSpec } = SPECIFICATION.resolve(source(), VOLUMES);
    const copied = copiedSpecs({ spec, runSpec }, options(runSpec.mounts));
    const wanted = SPECIFICATION.resolve(equivalent({ inheritsSecrets }), VOLUMES);
    expect(copied.spec).toEqual(wanted.spec);
    const { demands, snapshotId, ...rest } = copied.runSpec;
    const { demands: wantedDemands, ...wantedRest } = wanted.runSpec;
    expect(rest).toEqual(wantedRest);
    expect(snapshotId).toBe(FORK_ID);
    expect(demands.toSorted()).toEqual([...wantedDemands, 'disk_snapshots'].toSorted());
    expect(new Set(demands).size).toBe(demands.length);
  });

  test('is the same when the source is a copy itself', () => {
    const { spec, runSpec } = SPECIFICATION.resolve(source(), VOLUMES);
    const once = copiedSpecs({ spec, runSpec }, options(runSpec.mounts));
    expect(copiedSpecs(once, options(once.runSpec.mounts))).toEqual(once);
  });
});
