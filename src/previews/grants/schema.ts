import { Type, type Static } from 'typebox';
import { EventActor } from '../../audit/events/schema.js';
import { DateTime, Field, Int32, Named, Nullable, PageOf, Uuid, Words } from '../../http/schema.js';

export const LIFETIME_SECS = { default: 3_600, max: 30 * 24 * 3_600 };
const LONGEST_PATH = 2_048;
const LONGEST_LABEL = 128;
/** The most open previews of one sandbox. */
export const MOST_OPEN = 100;

const HostForm = Words(['outer', 'sandbox'], {
  title: 'PreviewHostForm',
  description:
    'The `Host` that the server in the sandbox gets: `outer` is the host name of the preview, `sandbox` is `localhost` with the port.',
});

const properties = {
  id: Field(Uuid, 'The id of the preview.'),
  sandbox_id: Field(Uuid, 'The id of the sandbox.'),
  port: Int32({ description: 'The TCP port in the sandbox.' }),
  path: Type.String({ description: 'The path that the link opens, with its query.' }),
  origin: Type.String({ description: 'The origin of the pages of the port, without a path.' }),
  label: Field(Nullable(Type.String()), 'The purpose, for people.'),
  host: HostForm,
  public: Type.Boolean({ description: 'Whether everybody may use the preview, without a grant.' }),
  status: Words(['open', 'expired', 'revoked'], {
    title: 'PreviewStatus',
    description: 'A preview is revoked by a caller, or with the key that made it.',
  }),
  created_by: Field(EventActor, 'The caller who made the preview.'),
  created_at: Field(DateTime, 'The time at which it was made.'),
  expires_at: Field(DateTime, 'The time at which it ends.'),
  revoked_at: Field(Nullable(DateTime), 'The time at which it was revoked. Null: it was not.'),
  last_used_at: Field(
    Nullable(DateTime),
    'The last use, at most a minute late. Null: nobody has used the preview.',
  ),
};

export const PreviewResponse = Named('PreviewResponse', properties, 'A preview, without its token.');
export type PreviewResponse = Static<typeof PreviewResponse>;

export const PaginatedPreview = PageOf('PaginatedPreviewResponse', PreviewResponse);

const REPEATED = 'Null when the answer is repeated under an `Idempotency-Key`.';

export const PreviewWithToken = Named(
  'PreviewWithToken',
  {
    ...properties,
    url: Field(
      Nullable(Type.String()),
      `The link for browsers. Its fragment has the token, which is shown only now. ${REPEATED}`,
    ),
    token: Field(
      Nullable(Type.String()),
      `The token for programs, as \`Authorization: Bearer\` or \`x-sandkeep-preview\`. Null for a public preview. ${REPEATED}`,
    ),
  },
  'A preview with its token.',
);
export type PreviewWithToken = Static<typeof PreviewWithToken>;

export const CreatePreviewRequest = Type.Object(
  {
    port: Int32({ minimum: 1, maximum: 65_535, description: 'The TCP port in the sandbox.' }),
    path: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: LONGEST_PATH,
        default: '/',
        description: 'The path that the link opens. It begins with a slash and may have a query.',
      }),
    ),
    ttl_secs: Type.Optional(
      Int32({
        minimum: 1,
        maximum: LIFETIME_SECS.max,
        default: LIFETIME_SECS.default,
        description: 'The seconds after which the preview ends. It ends with its key at the latest.',
      }),
    ),
    label: Type.Optional(
      Nullable(Type.String({ maxLength: LONGEST_LABEL, description: 'The purpose, for people.' })),
    ),
    public: Type.Optional(
      Type.Boolean({
        default: false,
        description: 'Everybody may use the preview. The organization must allow it.',
      }),
    ),
    host: Type.Optional(Field(HostForm, 'The `Host` that the server gets. Default: `outer`.')),
  },
  {
    title: 'CreatePreviewRequest',
    description: 'The port to open, and for how long.',
    additionalProperties: false,
  },
);
export type CreatePreviewRequest = Static<typeof CreatePreviewRequest>;
