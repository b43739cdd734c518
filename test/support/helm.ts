import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import type { KubernetesObject } from '@kubernetes/client-node';
import { describe, expect } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';

/** Where test/deploy/get-helm.sh puts Helm and the schemas. */
export const HELM_DIRECTORY =
  process.env['SANDKEEP_TEST_HELM_DIR'] ??
  join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'sandkeep-helm');
export const CHART = join(PACKAGE_ROOT, 'deploy', 'helm', 'sandkeep');
export const valuesFile = (name: string) =>
  join(PACKAGE_ROOT, 'test', 'deploy', 'chart-values', `${name}.yaml`);

const HELM = join(HELM_DIRECTORY, 'helm');
const hasHelm = existsSync(HELM);
if (!hasHelm) {
  console.warn(
    `the tests of the Helm chart are SKIPPED: there is no ${HELM} ("test/deploy/get-helm.sh ${HELM_DIRECTORY}" makes it)`,
  );
}

/** With SANDKEEP_TEST_HELM=required the tests fail without Helm. */
export const describeHelm = describe.skipIf(!hasHelm && process.env['SANDKEEP_TEST_HELM'] !== 'required');

export function helm(args: readonly string[]): { status: number | null; out: string; err: string } {
  const { status, stdout, stderr, error } = spawnSync(HELM, args, { encoding: 'utf8' });
  if (error) throw error;
  return { status, out: stdout, err: stderr };
}

export interface RenderOptions {
  values?: string;
  set?: readonly string[];
  namespace?: string;
  more?: readonly string[];
}

function argumentsOf({ values, set = [], namespace = 'prod', more = [] }: RenderOptions): string[] {
  return [
    'template',
    'sandkeep',
    CHART,
    '--namespace',
    namespace,
    ...more,
    ...(values === undefined ? [] : ['--values', valuesFile(values)]),
    ...set.flatMap((each) => ['--set', each]),
  ];
}

export type Rendered = KubernetesObject & Record<string, any>;

export function render(options: RenderOptions): Rendered[] {
  const { status, out, err } = helm(argumentsOf(options));
  expect(status, err).toBe(0);
  return parseAllDocuments(out).flatMap((document) => {
    expect(document.errors).toEqual([]);
    const object = document.toJSON() as Rendered | null;
    return object === null ? [] : [object];
  });
}

/** The error of values that the chart refuses. */
export function refusal(options: RenderOptions): string {
  const { status, err } = helm(argumentsOf(options));
  expect(status).toBe(1);
  return err;
}

export function only(objects: readonly Rendered[], kind: string, name = 'sandkeep'): Rendered {
  const found = objects.filter((object) => object.kind === kind && object.metadata?.name === name);
  expect(found, `${kind} ${name}`).toHaveLength(1);
  return found[0]!;
}
