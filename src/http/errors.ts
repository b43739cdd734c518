/** Every error of the service. docs/api-contract.md, section 7, fixes some codes and messages to the letter. */
export const CATALOGUE = {
  invalid_request: {
    status: 400,
    message: 'the request is not valid',
    remedy:
      'Read the message; `details` names the parameter or field. Mend the request; the same one fails again.',
  },
  invalid_json: {
    status: 400,
    message: 'the body is not valid JSON',
    remedy: 'Send one JSON object in UTF-8.',
  },
  passkey_refused: {
    status: 400,
    message: 'the new passkey was not accepted',
    remedy:
      'Begin again: a challenge works once, for five minutes. The authenticator must verify its user by PIN or biometrics; the log of the service has the reason.',
  },
  invalid_sandbox_config: {
    status: 400,
    message: 'the sandbox cannot be made as asked',
    remedy:
      '`details.field` names what the runtime cannot do or what is not allowed. Change or leave it out.',
  },
  invalid_volume_path: {
    status: 400,
    message: 'the path is malformed, or leads to another kind of file than the operation needs',
    remedy:
      'Paths are UTF-8, absolute or relative to the top of the volume, and have no "..". The message says what is wrong.',
  },
  invalid_sandbox_path: {
    status: 400,
    message: 'the path is malformed, or leads to another kind of file than the operation needs',
    remedy:
      'Paths are UTF-8, begin at the top of the sandbox, and have no "..". The message says what is wrong.',
  },
  invalid_api_key: {
    status: 401,
    message: 'unauthorized',
    remedy:
      'Send `Authorization: Bearer <key>` with a key that `sandkeep key create` printed and nobody revoked. Without a key, `details.header` names the header that is missing.',
  },
  invalid_ticket: {
    status: 401,
    message: 'the ticket is unknown, used or expired',
    remedy: 'Make a new ticket, and open the terminal within a minute. A ticket opens one terminal.',
  },
  invalid_session: {
    status: 401,
    message: 'the session is unknown or has ended',
    remedy:
      'Sign in again. A session ends with the sign-out, with its key or member, and twelve hours after the sign-in; that of a member also after two hours without use.',
  },
  invalid_sign_in_link: {
    status: 401,
    message: 'the link is unknown, used or expired',
    remedy: 'Ask the operator for a new one: `sandkeep member link`. A link opens one session.',
  },
  invalid_passkey: {
    status: 401,
    message: 'the passkey was not accepted',
    remedy:
      'Begin the sign-in again: a challenge works once, for five minutes, in one browser. Without a passkey, ask the operator for a link: `sandkeep member link`.',
  },
  preview_access_required: {
    status: 401,
    message: 'this preview needs a grant',
    remedy:
      'Open the link of the preview, or send its token as `Authorization: Bearer` or `x-sandkeep-preview`. A preview that has ended needs a new one.',
  },
  public_previews_off: {
    status: 403,
    message: 'the organization does not allow public previews',
    remedy: 'Leave `public` out, or ask the operator for `sandkeep org previews --public on`.',
  },
  invalid_csrf_token: {
    status: 403,
    message: 'a change by cookie needs the CSRF token of the session',
    remedy: 'Send the `csrf_token` of `GET /console/session` in the header `x-csrf-token`.',
  },
  recent_sign_in_required: {
    status: 403,
    message: 'passkeys change only within 15 minutes of the sign-in',
    remedy: 'Sign out, and sign in again.',
  },
  passkeys_unavailable: {
    status: 403,
    message: 'there are no passkeys here',
    remedy:
      'The message says why. Passkeys need the console at the https address of --public-url, or at http://localhost.',
  },
  member_required: {
    status: 403,
    message: 'only a member of the organization may do this, in a session of the console',
    remedy: 'Sign in to the console as a member. A key or a personal token makes no personal token.',
  },
  owner_required: {
    status: 403,
    message: 'only an owner of the organization may do this',
    remedy:
      'Owners add, change and remove owners, in a session of the console; keys do not. Ask an owner or the operator.',
  },
  insufficient_scope: {
    status: 403,
    message: 'the key is not allowed to do this',
    remedy:
      '`details.required_scope` is what the key or the role lacks. Use a key that has it, since a key gets no scopes after it was made; for a member, ask an owner for another role.',
  },
  label_not_allowed: {
    status: 403,
    message: 'the key is narrowed to sandboxes with other labels',
    remedy: '`details.labels` are those that every sandbox of this key has and keeps.',
  },
  key_exceeds_caller: {
    status: 403,
    message: 'a key cannot create a key with more rights than its own',
    remedy:
      '`details.field` names the right that exceeds those of the key. Request less, or use a key with that right.',
  },
  address_not_allowed: {
    status: 403,
    message: 'the key may not be used from this address',
    remedy: 'Use it from one of the networks it was made for, or make one for this.',
  },
  origin_not_allowed: {
    status: 403,
    message: 'pages of this origin may not open terminals',
    remedy:
      'Serve the page from the host of the service. For a terminal, the operator can also add its origin to --terminal-origins.',
  },
  quota_exceeded: {
    status: 403,
    message: 'a quota of the organization does not allow this',
    remedy:
      '`details` has the quota, its limit and what is in use. Delete or stop something, ask for less, or ask the operator for more.',
  },
  budget_exceeded: {
    status: 403,
    message: 'a budget of the organization is used up',
    remedy:
      '`details` has the budget, its limit and use, and when it renews. Wait until then, or ask an administrator to raise the limit with `PATCH /v1/budgets/{budget_id}`.',
  },
  volume_file_forbidden: {
    status: 403,
    message: 'the file system does not permit the service this operation',
    remedy: 'Change the permissions inside a sandbox, or let the operator run the service as a user who may.',
  },
  sandbox_file_forbidden: {
    status: 403,
    message: 'the file system of the sandbox does not allow that',
    remedy: '`details.errno` names the reason: such as EROFS for a read-only mount.',
  },
  org_not_found: {
    status: 404,
    message: 'the organization does not exist',
    remedy:
      'Compare the slug in the path: the credential opens no organization with it. Without one in the path, ask the operator: the organization of this key is gone.',
  },
  sandbox_not_found: {
    status: 404,
    message: 'resource not found',
    remedy: 'Check the id or name. Objects of other organizations are not found either.',
  },
  volume_not_found: {
    status: 404,
    message: 'volume not found',
    remedy: 'Create the volume, or mend its name in `mounts`.',
  },
  snapshot_not_found: {
    status: 404,
    message: 'there is no such snapshot',
    remedy:
      '`GET /v1/snapshots` lists the snapshots that are ready, and `?include=deleted` those that can be restored.',
  },
  snapshot_operation_not_found: {
    status: 404,
    message: 'there is no such operation on snapshots',
    remedy: 'Check the id against `GET /v1/snapshot-operations`. One that failed is forgotten after 30 days.',
  },
  template_not_found: {
    status: 404,
    message: 'there is no such template',
    remedy: '`GET /v1/templates` lists the templates and their builds.',
  },
  fork_operation_not_found: {
    status: 404,
    message: 'there is no such fork operation',
    remedy: 'Check the id against `GET /v1/fork-operations`. One that failed is forgotten after 30 days.',
  },
  volume_file_not_found: {
    status: 404,
    message: 'there is no such file or directory in the volume',
    remedy: 'Check the path. Links, pipes, sockets and devices are not served: they count as missing.',
  },
  sandbox_file_not_found: {
    status: 404,
    message: 'there is no such file or directory in the sandbox',
    remedy: 'Check the path.',
  },
  key_not_found: {
    status: 404,
    message: 'there is no such key',
    remedy: 'Check the id against `GET /v1/keys`.',
  },
  pool_not_found: {
    status: 404,
    message: 'there is no such pool',
    remedy: '`GET /v1/pools` lists the pools of the organization.',
  },
  member_not_found: {
    status: 404,
    message: 'there is no such member',
    remedy: '`GET /v1/members` lists the members of the organization.',
  },
  device_not_found: {
    status: 404,
    message: 'no device waits with this code',
    remedy: 'Compare the code with the one on the device. It works once, for ten minutes: begin again there.',
  },
  token_not_found: {
    status: 404,
    message: 'there is no such personal token',
    remedy: '`GET /v1/tokens` lists those that the caller may revoke.',
  },
  invitation_not_found: {
    status: 404,
    message: 'there is no such invitation',
    remedy: '`GET /v1/invitations` lists the open ones. One that was accepted or revoked is gone.',
  },
  passkey_not_found: {
    status: 404,
    message: 'there is no such passkey',
    remedy: '`sandkeep member passkeys` lists the passkeys of a member, and the page "Account" your own.',
  },
  preview_not_found: {
    status: 404,
    message: 'there is no such preview',
    remedy: 'Check the id against the previews of the sandbox. One that has ended is forgotten after a week.',
  },
  session_not_found: {
    status: 404,
    message: 'there is no such session',
    remedy: 'Check the id against the open sessions of the sandbox. A session that has ended is gone.',
  },
  budget_not_found: {
    status: 404,
    message: 'there is no such budget',
    remedy: '`GET /v1/budgets` lists the budgets of the organization.',
  },
  mcp_session_not_found: {
    status: 404,
    message: 'the key has no such session of the Model Context Protocol',
    remedy: 'Begin a new session with `initialize`. A session belongs to the key that began it.',
  },
  route_not_found: {
    status: 404,
    message: 'there is no such route',
    remedy: 'Check method and path against /docs.',
  },
  method_not_allowed: {
    status: 405,
    message: 'this route does not take that method',
    remedy: 'Use one of the methods in the `Allow` header.',
  },
  request_timeout: {
    status: 408,
    message: 'the request did not arrive in time',
    remedy: 'Send it again, without pauses.',
  },
  idempotency_conflict: {
    status: 409,
    message: 'this idempotency key was used for another request',
    remedy: 'Use a new key for a new request; repeat a request exactly as it was first sent.',
  },
  member_already_exists: {
    status: 409,
    message: 'the address is that of a member',
    remedy: 'Change the role of the member instead: `PATCH /v1/members/{member_id}`.',
  },
  last_passkey: {
    status: 409,
    message: 'this is your only passkey',
    remedy: 'Add another one first: without any, only a link of the operator signs you in.',
  },
  token_not_rotated: {
    status: 409,
    message: 'a personal token gets no new secret',
    remedy: 'Its member makes another one, and revokes this one.',
  },
  last_owner: {
    status: 409,
    message: 'the organization would have no owner',
    remedy: 'Make another member the owner first.',
  },
  name_already_exists: {
    status: 409,
    message: 'a sandbox of this name or slug already exists',
    remedy: 'Choose another, or delete the sandbox that has it.',
  },
  port_taken: {
    status: 409,
    message: 'another sandbox has this port of the host',
    remedy:
      'Leave `host_port` out to get a free one, or choose another. `details.sandbox_id` names a sandbox of your own that has it; a deleted one has none.',
  },
  volume_already_exists: {
    status: 409,
    message: 'a volume of this name already exists',
    remedy: 'Choose another name, or use the volume that has it.',
  },
  snapshot_already_exists: {
    status: 409,
    message: 'a snapshot of this name already exists',
    remedy: 'Choose another name, delete the snapshot that has it, or replace it with `force`.',
  },
  volume_in_use: {
    status: 409,
    message: 'the volume is mounted by sandboxes',
    remedy: 'Delete the sandboxes that `details.sandboxes` names, then the volume.',
  },
  volume_deleting: {
    status: 409,
    message: 'the volume is being deleted',
    remedy: 'Restore the volume first. Its files can still be read.',
  },
  volume_file_exists: {
    status: 409,
    message: 'another file or directory has this path',
    remedy: 'Remove or rename it first: a file does not replace a directory, nor a directory a file.',
  },
  volume_directory_not_empty: {
    status: 409,
    message: 'the directory is not empty',
    remedy: 'Remove its entries first, or remove it with `x-msb-file-recursive: true`.',
  },
  sandbox_file_exists: {
    status: 409,
    message: 'another file or directory has this path',
    remedy: 'Remove or rename it first: a file does not replace a directory, nor a directory a file.',
  },
  sandbox_directory_not_empty: {
    status: 409,
    message: 'the directory is not empty',
    remedy: 'Remove its entries first, or remove it with `x-msb-file-recursive: true`.',
  },
  /** The status is the contract's "rejected with code invalid_request", told apart from a malformed request by 409. */
  host_volume: {
    status: 409,
    code: 'invalid_request',
    message: 'the host volume cannot be deleted',
    remedy: 'The host volume stays as long as its organization.',
  },
  /** The official clients of 0.7 have a typed error for it. */
  modification_unsupported: {
    status: 409,
    message: 'the change cannot be made while the sandbox runs',
    remedy:
      'Stop the sandbox, change it, and start it again. `PATCH` changes name, slug and labels at any time.',
  },
  /** The official clients send the change again. */
  modification_in_progress: {
    status: 409,
    message: 'the sandbox is starting or stopping',
    remedy: 'Send the change again when the sandbox has settled.',
  },
  modification_refused: {
    status: 409,
    message: 'the change cannot be made as asked',
    remedy:
      '`details.field` names the part that cannot be made now. Nothing was changed. Make a plan to see all of it.',
  },
  session_ended: {
    status: 409,
    message: 'another caller has ended the session',
    remedy:
      'Its event `sandbox_session_end_requested` names the caller. A repetition of the request begins a new session.',
  },
  invalid_state_transition: {
    status: 409,
    message: 'the sandbox is not in a status that allows this',
    remedy: '`details` has the status and the operation; wait until the sandbox has settled.',
  },
  ended_with_sandbox: {
    status: 409,
    message: 'the sandbox ended before the operation did',
    remedy:
      'The operation had begun. `details.reason` says why the sandbox ended; of a command, `details` also has `started_at` and the output so far. An `Idempotency-Key` keeps this answer. Start the sandbox, look at what was done, and send the request with a new key to repeat it.',
  },
  payload_too_large: {
    status: 413,
    message: 'the body is too large',
    remedy: 'Send at most the size that `details.limit_bytes` names.',
  },
  unsupported_media_type: {
    status: 415,
    message: 'the body must be application/json',
    remedy: 'Send `content-type: application/json`.',
  },
  expectation_failed: {
    status: 417,
    message: 'the service cannot meet the Expect header',
    remedy: 'Send `Expect: 100-continue`, or no `Expect` header.',
  },
  command_not_started: {
    status: 422,
    message: 'the command could not be started',
    remedy:
      '`details.kind` names the fault: such as `not_found`, `permission_denied`, `bad_cwd` or `user_setup_failed`. Mend the program, its directory or its user.',
  },
  misdirected_request: {
    status: 421,
    message: 'this host name is not served here',
    remedy: 'Use the URL that the preview was created with, letter for letter.',
  },
  rate_limited: {
    status: 429,
    message: 'too many requests',
    remedy: 'Wait as long as `Retry-After` says.',
  },
  headers_too_large: {
    status: 431,
    message: 'the headers are too large',
    remedy: 'Send less than 16 KiB of headers and URL.',
  },
  internal_error: {
    status: 500,
    message: 'something went wrong on our side',
    remedy: 'Try again; when it stays, give the operator `details.request_id`.',
  },
  no_answer_of_sandbox: {
    status: 502,
    message: 'the server in the sandbox gave no valid answer',
    remedy: 'Check that the server listens on this port of the sandbox, and read its log.',
  },
  not_supported: {
    status: 501,
    message: 'this installation cannot do that',
    remedy: 'The message says what is missing, and docs/runtimes.md what each runtime can do.',
  },
  storage_full: {
    status: 507,
    message: 'the volume or its disk has no room for the file',
    remedy: 'Remove files, raise the cap of the volume, or let the operator make room on its disk.',
  },
  modification_failed: {
    status: 503,
    message: 'the change is stored, and did not reach the running sandbox',
    remedy: 'Send the request again. The change takes effect at the next start of the sandbox at the latest.',
  },
  sandbox_not_running: {
    status: 503,
    message: 'the sandbox does not run',
    remedy:
      '`details.reason` says why. While it is `starting`, repeat the request after `Retry-After`, or send `Prefer: wait=30` to wait. Otherwise start the sandbox, whose `stop_message` and `last_failure_message` have more.',
  },
  not_ready: {
    status: 503,
    message: 'the service cannot reach its database',
    remedy: 'Try again in a few seconds; the operator finds the cause in the log.',
  },
} as const satisfies Record<string, { status: number; code?: string; message: string; remedy: string }>;

export type ErrorName = keyof typeof CATALOGUE;
export type Details = Record<string, unknown>;

/** A refusal from the catalogue. The caller of the constructor may replace the default message and give details. */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly headers: Record<string, string>;

  constructor(
    readonly kind: ErrorName,
    message?: string,
    readonly details: Details | null = null,
    { headers = {}, cause }: { headers?: Record<string, string>; cause?: unknown } = {},
  ) {
    const entry: { status: number; code?: string; message: string } = CATALOGUE[kind];
    super(message ?? entry.message, { cause });
    this.status = entry.status;
    this.code = entry.code ?? kind;
    this.headers = headers;
  }

  get body(): { error: { code: string; message: string; details: Details | null } } {
    return { error: { code: this.code, message: this.message, details: this.details } };
  }
}

export function badParameter(parameter: string, message: string): ApiError {
  return new ApiError('invalid_request', message, { parameter });
}
