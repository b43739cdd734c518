import type { Static } from 'typebox';
import { Named, restricting } from '../http/schema.js';
import { env } from './fields/env.js';
import { image, pullPolicy, registry } from './fields/image.js';
import { name, slug } from './fields/identity.js';
import { labels } from './fields/labels.js';
import { lifecycle } from './fields/lifecycle.js';
import { mounts } from './fields/mounts.js';
import { network } from './fields/network.js';
import { patches } from './fields/patches.js';
import { init, securityProfile } from './fields/process.js';
import { resources } from './fields/resources.js';
import { rlimits } from './fields/rlimits.js';
import { runtime } from './fields/runtime.js';
import { FLAT_SOURCE } from './flat-source-schema.js';
import { RESTRICTING_WORDS, UNKNOWN_FIELDS } from './restrictions.js';
import { CREATE_BODY_LIMIT, MAX_SPEC_BYTES } from './size-limits.js';
import { specificationOf } from './table.js';

/**
 * The fields of a specification, in the order of answers and of checks. An entry has all of a field: its schema,
 * default, check, requirements, and its place in the answer, in the row and in the specification that engines get.
 */
export const SPECIFICATION_FIELDS = {
  name,
  slug,
  resources,
  runtime,
  env,
  labels,
  rlimits,
  lifecycle,
  mounts,
  network,
  image,
  patches,
  init,
  pull_policy: pullPolicy,
  security_profile: securityProfile,
  registry,
};

export const SPECIFICATION = specificationOf(SPECIFICATION_FIELDS);

export const SandboxSpec = Named(
  'SandboxSpecResponse',
  SPECIFICATION.answerProperties,
  'The specification with all defaults filled in, without secret values, vault paths and volume ids.',
);
export type SandboxSpec = Static<typeof SandboxSpec>;

export const CreateSandboxRequest = Named(
  'CreateSandboxRequest',
  SPECIFICATION.requestProperties,
  `The sandbox to create. All fields but \`patches\` have ${MAX_SPEC_BYTES} bytes of JSON at most, and the body ${CREATE_BODY_LIMIT}. ${UNKNOWN_FIELDS}`,
  { ...restricting({ fields: SPECIFICATION.restricting, words: RESTRICTING_WORDS }), ...FLAT_SOURCE },
);
export type CreateSandboxRequest = Static<typeof CreateSandboxRequest>;
