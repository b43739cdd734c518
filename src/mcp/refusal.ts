import { CATALOGUE, type ErrorName } from '../http/errors.js';

/** Details of an error may have the output of a command. */
const MOST_DETAILS = 16_384;

/** Remedies for a model that calls tools, where they differ from those for a program that sends requests. */
const REMEDIES: Partial<Record<ErrorName, string>> = {
  invalid_state_transition:
    '`details` has the status. Start a sandbox that has stopped with start_sandbox. Wait while it starts or stops, and call get_sandbox.',
  sandbox_not_found:
    'Call list_sandboxes for the names and ids. An ephemeral sandbox is removed when it ends: make a new one with create_sandbox.',
  snapshot_not_found: 'Call list_snapshots for the names and ids.',
  snapshot_already_exists: 'Choose another name, or remove the other snapshot with delete_snapshot.',
  template_not_found:
    'Call list_templates for the names, tags and ids. A template is made by build_template.',
  fork_operation_not_found: 'The id is the `fork` of the result of fork_sandbox.',
  quota_exceeded:
    'Delete sandboxes that are no longer needed (list_sandboxes, delete_sandbox), or ask for less. Otherwise tell the user that the operator sets the quota.',
  name_already_exists: 'Choose another name, or leave the name out to get a free one.',
  insufficient_scope:
    'Tell the user: the API key of this server lacks a scope, and a repetition fails in the same way.',
  label_not_allowed:
    'Give the labels that `details.labels` names: the API key of this server is limited to sandboxes with them.',
  address_not_allowed: 'Tell the user: the API key of this server may not be used from this address.',
  invalid_api_key:
    'Tell the user: the API key of this server is missing, wrong, expired or revoked. A repetition fails in the same way.',
  command_not_started:
    'Check that the image has the program: `details.kind` names the fault. Install it with run_command, or create a sandbox from an image that has it.',
  sandbox_file_not_found: 'Check the path with list_files.',
  invalid_sandbox_config:
    '`details.field` names the part that this installation cannot do or does not allow. Change it or leave it out.',
  ended_with_sandbox:
    'The sandbox ended while the command ran, for example because its time was over. Create or start one, and look at what was done before you repeat the command.',
  session_ended: 'Another caller has ended the command. Ask the user before you repeat it.',
  rate_limited: 'Wait, then repeat the call. Make fewer calls at once.',
  not_ready: 'Wait a few seconds, then repeat the call.',
  storage_full: 'Remove files with run_command, or tell the user that the disk of the sandbox is full.',
  payload_too_large: 'Write less at once: several files, or parts that run_command appends.',
};

interface Refused {
  status: number;
  details: unknown;
  retryAfter: string | undefined;
}

/** A refusal of the REST API. */
export class Refusal extends Error {
  readonly status: number;

  constructor(
    readonly code: string,
    message: string,
    private readonly refused: Refused,
  ) {
    super(message);
    this.status = refused.status;
  }

  /** The fault, the details, and what the model can do. */
  get advice(): string {
    const { details, retryAfter } = this.refused;
    const shown = details == null ? '' : `details: ${cut(JSON.stringify(details))}`;
    const wait = retryAfter === undefined ? '' : `Wait ${retryAfter} s.`;
    const lines = [`${this.message} (${this.code})`, shown, [wait, remedyOf(this.code)].join(' ').trim()];
    return lines.filter((line) => line !== '').join('\n');
  }
}

/** The service gave no answer, or one that broke off. */
export class Unreachable extends Error {
  get advice(): string {
    return `the service gave no complete answer: ${this.message}\nThe call may have been carried out or not. Look at the result first, with get_sandbox, list_sandboxes or list_files, then repeat the call if necessary. If this happens again, tell the user to check the service and its URL.`;
  }
}

function remedyOf(code: string): string {
  if (!Object.hasOwn(CATALOGUE, code)) return '';
  return REMEDIES[code as ErrorName] ?? CATALOGUE[code as ErrorName].remedy;
}

function cut(text: string): string {
  return text.length <= MOST_DETAILS ? text : `${text.slice(0, MOST_DETAILS)}…`;
}
