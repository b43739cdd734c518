import { Type, type Static } from 'typebox';
import { EventActor } from '../audit/events/schema.js';
import {
  DateTime,
  Field,
  Int32,
  Int64,
  Named,
  Nullable,
  PageOf,
  StringMap,
  Uuid,
  Words,
} from '../http/schema.js';
import { SPECIFICATION } from '../spec/specification.js';
import { TEMPLATE_STATUSES } from './state.js';

/** The fields of a create that a build passes on to its sandboxes. */
const { resources, network, pull_policy, registry, security_profile } = SPECIFICATION.requestProperties;
export const BuildSandbox = Type.Object(
  { resources, network, pull_policy, registry, security_profile },
  { additionalProperties: false },
);
export type BuildSandbox = Static<typeof BuildSandbox>;

const TemplateError = Nullable(
  Named(
    'TemplateError',
    {
      code: Type.String({ description: 'The reason as a code.' }),
      message: Type.String({ description: 'The reason for people.' }),
      line: Field(Nullable(Type.Integer()), 'The line of the Dockerfile. Null: no line has caused it.'),
    },
    'Why a build has failed, or was cancelled.',
  ),
);

const words = (description: string) => Nullable(Type.Array(Type.String(), { description }));

const TemplateConfigResponse = Named(
  'TemplateConfig',
  {
    env: Type.Array(
      Type.Object({
        key: Type.String({ description: 'The name of the variable.' }),
        value: Type.String({ description: 'The value of the variable.' }),
      }),
      { description: 'The variables of ENV.' },
    ),
    workdir: Nullable(Type.String({ description: 'The directory of WORKDIR. Null: that of the image.' })),
    user: Nullable(Type.String({ description: 'The user of USER. Null: that of the image.' })),
    cmd: words('The command of CMD, which is launched once at each start. Null: none is.'),
    entrypoint: words('The words of ENTRYPOINT before the command. Null: those of the image.'),
    labels: StringMap({ description: 'The labels of LABEL.' }),
    exposed: Type.Array(Type.String(), {
      description: 'The ports of EXPOSE, for people: nothing opens them.',
    }),
  },
  'The values that a sandbox of the template has, where its request gives no others.',
);

export const TemplateResponse = Named(
  'TemplateResponse',
  {
    id: Field(Uuid, 'The id of the build, and of its result.'),
    name: Type.String({ description: 'The name of the template.' }),
    tag: Type.String({ description: 'The tag. The newest build that succeeded has it.' }),
    status: Words([...TEMPLATE_STATUSES], {
      title: 'TemplateStatus',
      description: 'The progress of the build. Sandboxes start from one that `succeeded`.',
    }),
    steps: Int32({ description: 'The steps of the build: its instructions RUN, COPY, ADD and WORKDIR.' }),
    steps_done: Int32({ description: 'The steps that are done, with those of the cache.' }),
    steps_cached: Int32({ description: 'The steps whose results an earlier build had.' }),
    error: Field(TemplateError, 'Why the build has failed, or was cancelled. Null: it has not.'),
    config: Field(
      Nullable(TemplateConfigResponse),
      'The values for its sandboxes. Null: it has not succeeded.',
    ),
    size_bytes: Nullable(
      Int64({ description: 'The bytes of everything above the image. Null: it has not succeeded.' }),
    ),
    snapshot_id: Field(
      Nullable(Uuid),
      'The snapshot that the template stands for. Sandboxes have it as `disk_snapshot_id`. Templates whose steps were all cached have the same one. Null: it has not succeeded.',
    ),
    digest: Nullable(Type.String({ description: 'The digest of the snapshot. Null: it has not succeeded.' })),
    dockerfile: Type.String({ description: 'The Dockerfile.' }),
    target: Nullable(
      Type.String({ description: 'The stage of the Dockerfile that was built. Null: the last one.' }),
    ),
    context_digest: Nullable(
      Type.String({ description: 'The SHA-256 of the context. Null: there was none.' }),
    ),
    sandbox_id: Field(Nullable(Uuid), 'The sandbox in which a step runs now. Null: none does.'),
    labels: StringMap({ description: 'The labels of the template and of the sandboxes of its build.' }),
    created_by: EventActor,
    created_at: Field(DateTime, 'The time of the request.'),
    started_at: Field(Nullable(DateTime), 'The time at which the build began. Null: it waits for its turn.'),
    completed_at: Field(Nullable(DateTime), 'The time at which the build ended. Null: it has not.'),
  },
  'A template: the disk and the configuration that a build makes.',
);
export type TemplateResponse = Static<typeof TemplateResponse>;

export const PaginatedTemplate = PageOf('PaginatedTemplate', TemplateResponse);
