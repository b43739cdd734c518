import { describe, expect, test } from 'vitest';
import { podOf } from '../../src/engines/kubernetes/pod.js';
import type { Run } from '../../src/engine/runtime.js';
import type { RunSpec } from '../../src/spec/run-spec.js';

function makePod(bandwidthMbits: number, more: Partial<RunSpec> = {}) {
  const spec: RunSpec = {
    image: 'busybox',
    pullPolicy: 'always',
    cmd: null,
    entrypoint: null,
    user: null,
    workdir: null,
    vcpus: 1,
    memoryMib: 128,
    diskMib: null,
    hostname: null,
    securityProfile: 'default',
    env: [],
    labels: {},
    mounts: [],
    scripts: {},
    patches: [],
    ...more,
  } as unknown as RunSpec;
  const run: Run = {
    orgId: 'org',
    sandboxId: 'sandbox',
    runId: 'run',
    name: 'pod',
    spec,
    secrets: { registry: null, values: {} },
  };
  return podOf(run, {
    instanceId: 'instance',
    architecture: 'amd64',
    programs: { name: 'programs' },
    secretNames: {},
    runtimeClass: undefined,
    restrictedRuntimeClass: undefined,
    defaultDiskMib: 0,
    nodeImages: [],
    access: 'ReadWriteOnce',
    cpuOvercommit: 1,
    sharedCpuMillis: 250,
    bandwidthMbits,
  });
}

function annotationsOf(bandwidthMbits: number, more: Partial<RunSpec> = {}): Record<string, string> {
  return makePod(bandwidthMbits, more).metadata!.annotations!;
}

describe('a Pod', () => {
  test('names its bandwidth to the network plugin, in both directions', () => {
    expect(annotationsOf(250)).toEqual({
      'kubernetes.io/ingress-bandwidth': '250M',
      'kubernetes.io/egress-bandwidth': '250M',
    });
  });

  test('keeps its other annotations beside the bandwidth', () => {
    const more = { scripts: { hello: 'echo hello' }, labels: { 'a/b': 'two words' } };
    expect(Object.keys(annotationsOf(250, more))).toHaveLength(4);
    expect(Object.keys(annotationsOf(0, more))).toHaveLength(2);
  });

  test('without a vCPU has a ceiling, and takes no CPU of its node', () => {
    const { limits, requests } = makePod(0, { vcpus: 0 }).spec!.containers[0]!.resources!;
    expect([limits!['cpu'], requests!['cpu']]).toEqual(['250m', '0']);
  });

  test('names no bandwidth without a limit', () => {
    expect(annotationsOf(0)).toEqual({});
  });
});
