import { Type } from 'typebox';
import { Field, Nullable, Uuid, Variants, Words } from '../../http/schema.js';
import { field, requiredField } from '../field.js';
import { parseImageReference } from '../image-reference.js';
import { refuse } from '../refuse.js';

export const image = requiredField({
  schema: Variants(
    'type',
    [
      Type.Object({
        type: Type.Literal('oci', { description: 'The sandbox starts from an OCI image.' }),
        reference: Type.String({
          description: 'The reference of the OCI image, such as `python:3.12`.',
          examples: ['python:3.12'],
        }),
      }),
      Type.Object({
        type: Type.Literal('disk_snapshot', { description: 'The sandbox starts from a snapshot.' }),
        id: Type.String({ description: 'The id or the name of the snapshot.' }),
      }),
      Type.Object({
        type: Type.Literal('template', {
          description: 'The sandbox starts from a template, with its variables, user and command.',
        }),
        name: Type.String({ description: 'The name of the template.' }),
        tag: Type.Optional(
          Type.String({ default: 'latest', description: 'The tag of the template. Default: `latest`.' }),
        ),
      }),
    ],
    {
      title: 'CloudRootfsSource',
      description:
        'The image, the snapshot or the template that a sandbox starts from. Instead of it, the body may have `source`, with `reference` or `disk_snapshot_ref`.',
    },
  ),
  answer: Type.Optional(
    Nullable(
      Type.String({
        description: 'The OCI image that the sandbox starts from, also below a snapshot or a template.',
      }),
    ),
  ),
  check(source) {
    if (source.type !== 'oci') return;
    const { reference } = source;
    if (reference === '')
      refuse('image.reference', 'image.reference must name an OCI image, such as python:3.12');
    if (!parseImageReference(reference))
      refuse('image.reference', 'image.reference is not an OCI image reference, such as python:3.12');
  },
  requires: ({ type }) => [
    type !== 'oci' && {
      capability: 'disk_snapshots',
      what: `start sandboxes from ${type === 'template' ? 'templates' : 'snapshots'}`,
      remedy: 'name an OCI image',
    },
  ],
  // A create replaces a snapshot or a template by the image below it first.
  show: (source) => (source.type === 'oci' ? source.reference : null),
  run: (source) => ({ image: source.type === 'oci' ? source.reference : '' }),
});

export const pullPolicy = field({
  schema: Words(['if_missing', 'always', 'never'], {
    title: 'CloudPullPolicy',
    description: 'When the image is pulled. Default: `if_missing`.',
  }),
  answer: null,
  default: 'if_missing',
  run: (policy) => ({ pullPolicy: policy }),
});

const RegistrySelection = Variants(
  'mode',
  [
    Type.Object({
      mode: Words(['auto', 'anonymous'], {
        description:
          'Pulled with the stored credential whose pattern matches the image, if there is one (`auto`), or without credentials (`anonymous`).',
      }),
    }),
    Type.Object({
      mode: Type.Literal('specific', { description: 'The image is pulled with this stored credential.' }),
      credential_id: Field(Uuid, 'The id of the stored credential.'),
    }),
    Type.Object({
      mode: Type.Literal('inline', { description: 'The image is pulled with the credentials given here.' }),
      username: Type.String({ description: 'The user name at the registry.' }),
      password: Type.String({
        format: 'password',
        description: 'The password at the registry. It is kept only until the image is pulled.',
      }),
    }),
  ],
  { title: 'RegistrySelection', description: 'The credentials with which the image is pulled.' },
);

export const registry = field({
  schema: Field(
    Nullable(RegistrySelection),
    'The credentials with which the image is pulled. Default: `auto`.',
  ),
  answer: null,
  default: null,
  requires: (selection) => [
    (selection?.mode === 'inline' || selection?.mode === 'specific') && {
      capability: 'registry_credentials',
      field: 'registry.mode',
      what: 'log in to a registry',
    },
  ],
  run: (selection) => {
    if (selection?.mode === 'anonymous') return { registryAccess: { mode: 'anonymous' } };
    if (selection?.mode !== 'specific') return {};
    return { registryAccess: { mode: 'specific', credential_id: selection.credential_id } };
  },
  seal: (selection) => ({
    registry:
      selection?.mode === 'inline' ? { username: selection.username, password: selection.password } : null,
  }),
});
