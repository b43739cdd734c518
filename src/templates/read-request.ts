import type { Caller } from '../access/caller.js';
import { ApiError, badParameter } from '../http/errors.js';
import { readLabels } from '../http/parameters.js';
import { explainFirst, validatorOf } from '../http/validation.js';
import { parseJson } from '../lib/json.js';
import { checkLabels } from '../lib/labels.js';
import { findUnstorable } from '../lib/storable-text.js';
import { withKeyLabels } from '../sandboxes/admission/key-labels.js';
import { parseTemplateName, type TemplateName } from './reference.js';
import { BuildSandbox } from './schema.js';

export interface BuildQuery {
  tag: string;
  dockerfile?: string;
  build_args?: string;
  target?: string;
  labels?: string;
  sandbox?: string;
  cache?: boolean;
  timeout_secs?: number;
}

interface BuildRequest extends TemplateName {
  dockerfilePath: string;
  buildArgs: Record<string, string>;
  target: string | null;
  labels: Record<string, string>;
  sandbox: BuildSandbox;
  usesCache: boolean;
  timeoutSecs: number;
}

export const TIMEOUT_SECS = { default: 1_800, max: 7_200 };

const isBuildSandbox = validatorOf(BuildSandbox);

/** Throws the first refusal, which names the parameter. */
export function readRequest(caller: Caller, query: BuildQuery): BuildRequest {
  const named = parseTemplateName(query.tag);
  if (!named) {
    throw badParameter(
      'tag',
      'tag must be a name and a tag, such as agent:1: each has 1 to 128 of A-Z a-z 0-9 . - _, and begins with a letter or digit',
    );
  }
  const labels = withKeyLabels(caller, readLabels('labels', query.labels)) ?? {};
  const badLabel = checkLabels(labels);
  if (badLabel) throw badParameter('labels', badLabel.message);
  return {
    ...named,
    dockerfilePath: query.dockerfile ?? 'Dockerfile',
    buildArgs: readLabels('build_args', query.build_args),
    target: query.target ?? null,
    labels,
    sandbox: readSandbox(query.sandbox),
    usesCache: query.cache ?? true,
    timeoutSecs: query.timeout_secs ?? TIMEOUT_SECS.default,
  };
}

function readSandbox(text: string | undefined): BuildSandbox {
  if (text === undefined) return {};
  const value = parseJson(text);
  if (!isBuildSandbox(value)) {
    const reason = value === undefined ? 'it is no JSON' : explainFirst(isBuildSandbox.errors ?? []);
    throw badParameter('sandbox', `sandbox must be a JSON object with fields of a create: ${reason}`);
  }
  if (findUnstorable(value) !== undefined) {
    throw badParameter('sandbox', 'sandbox must not contain U+0000 or half of a surrogate pair');
  }
  const { network, registry } = value;
  if (network?.secrets?.entries?.length)
    refuseField('network.secrets', 'the disk of a template has no place for secrets');
  if (network?.ports?.length) refuseField('network.ports', 'a build publishes no ports');
  if (registry?.mode === 'inline') {
    refuseField(
      'registry.mode',
      'a build keeps no passwords: store the credential, and name it or use its pattern',
    );
  }
  return value;
}

function refuseField(field: string, reason: string): never {
  throw new ApiError('invalid_request', `sandbox: ${field}: ${reason}`, { parameter: 'sandbox', field });
}
