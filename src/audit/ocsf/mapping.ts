import type { EventType } from '../events/catalogue.js';

export const OCSF_VERSION = '1.8.0';

export const CLASSES = {
  entity_management: {
    name: 'Entity Management',
    uid: 3004,
    category: { name: 'Identity & Access Management', uid: 3 },
    activities: {
      0: 'Unknown',
      1: 'Create',
      2: 'Read',
      3: 'Update',
      4: 'Delete',
      5: 'Move',
      6: 'Enroll',
      7: 'Unenroll',
      8: 'Enable',
      9: 'Disable',
      10: 'Activate',
      11: 'Deactivate',
      12: 'Suspend',
      13: 'Resume',
    },
  },
  authentication: {
    name: 'Authentication',
    uid: 3002,
    category: { name: 'Identity & Access Management', uid: 3 },
    activities: { 0: 'Unknown', 1: 'Logon', 2: 'Logoff' },
  },
  api_activity: {
    name: 'API Activity',
    uid: 6003,
    category: { name: 'Application Activity', uid: 6 },
    activities: { 0: 'Unknown', 1: 'Create', 2: 'Read', 3: 'Update', 4: 'Delete' },
  },
  network_activity: {
    name: 'Network Activity',
    uid: 4001,
    category: { name: 'Network Activity', uid: 4 },
    activities: {
      0: 'Unknown',
      1: 'Open',
      2: 'Close',
      3: 'Reset',
      4: 'Fail',
      5: 'Refuse',
      6: 'Traffic',
      7: 'Listen',
    },
  },
} as const;
type ClassName = keyof typeof CLASSES;

export const SEVERITIES = { 1: 'Informational', 2: 'Low', 3: 'Medium' } as const;

export interface OcsfMapping {
  class: ClassName;
  /** A number of the class, or the name of an activity that the class lacks: number 99. */
  activity: number | string;
  /** Default: 1. */
  severity?: keyof typeof SEVERITIES;
  isFailure?: true;
}

const mapping =
  (name: ClassName) =>
  (
    activity: OcsfMapping['activity'],
    more: Pick<OcsfMapping, 'severity' | 'isFailure'> = {},
  ): OcsfMapping => ({
    class: name,
    activity,
    ...more,
  });
const entity = mapping('entity_management');
const login = mapping('authentication');
const call = mapping('api_activity');
const network = mapping('network_activity');

const LOW = { severity: 2 } as const;
const MEDIUM = { severity: 3 } as const;

/** An imported event can have any type. */
export const UNKNOWN_TYPE = entity(0);

/**
 * A request that is carried out later has an activity of its own, so that the numbers of the classes count each change
 * once.
 */
export const OCSF_MAPPINGS: Record<EventType, OcsfMapping> = {
  org_created: entity(1),
  history_imported: entity('Import'),
  quota_changed: entity(3),
  price_book_changed: entity(3),
  budget_created: entity(1),
  budget_updated: entity(3),
  budget_deleted: entity(4),
  budget_threshold_reached: entity('Threshold', MEDIUM),
  member_added: entity(6),
  member_invited: entity('Invitation'),
  member_invitation_revoked: entity('Invitation Revocation'),
  member_changed: entity(3),
  member_removed: entity(7),
  member_account_unlinked: entity('Account Unlink', MEDIUM),
  member_link_created: entity('Link Creation', MEDIUM),
  member_passkey_added: entity('Passkey Creation', MEDIUM),
  member_passkey_renamed: entity('Passkey Rename'),
  member_passkey_removed: entity('Passkey Removal', MEDIUM),
  member_session_opened: login(1),
  member_session_ended: login(2),

  api_key_created: entity(1),
  api_key_first_used: login(1),
  api_key_rotated: entity(3),
  api_key_expired: entity(9),
  api_key_refused_often: login(1, { ...MEDIUM, isFailure: true }),
  api_key_revoked: entity(4),
  console_session_opened: login(1),
  console_session_ended: login(2),

  sandbox_created: entity(1),
  sandbox_start_requested: entity('Start Request'),
  sandbox_start_queued: entity('Start Request'),
  sandbox_start_waiting: entity('Start Wait', LOW),
  sandbox_image_moved: entity('Image Move', LOW),
  sandbox_started: entity(10),
  sandbox_command_ended: entity('Command End', LOW),
  sandbox_stop_requested: entity('Stop Request'),
  sandbox_pause_requested: entity('Pause Request'),
  sandbox_paused: entity(11),
  sandbox_pause_failed: entity('Pause Failure', { isFailure: true }),
  sandbox_memory_discarded: entity('Memory Discard'),
  sandbox_stopped: entity(11),
  sandbox_failed: entity(11, { ...MEDIUM, isFailure: true }),
  sandbox_renamed: entity(5),
  sandbox_relabelled: entity(3),
  sandbox_secrets_changed: entity(3),
  sandbox_destroyed: entity(4),
  sandbox_removed: entity(4),
  sandbox_run_closed: entity(11),
  sandbox_fork_requested: entity('Fork Request'),
  sandbox_forked: entity('Fork'),
  sandbox_fork_failed: entity('Fork', { ...MEDIUM, isFailure: true }),
  sandbox_session_opened: call('Session Open'),
  sandbox_session_end_requested: call('Session End Request'),
  sandbox_session_ended: call('Session End'),
  sandbox_preview_created: call('Preview Open'),
  sandbox_preview_revoked: call('Preview Revoke'),
  preview_settings_changed: entity(3, LOW),
  pool_created: entity(1),
  pool_changed: entity(3),
  pool_deleted: entity(4),
  pool_sandbox_added: entity('Start Request'),
  pool_image_moved: entity('Image Move', LOW),

  snapshot_requested: entity('Capture Request'),
  snapshot_created: entity(1),
  snapshot_failed: entity(1, { ...MEDIUM, isFailure: true }),
  snapshot_imported: entity(1),
  snapshot_exported: entity('Export'),
  snapshot_deletion_scheduled: entity(4),
  snapshot_restored: entity('Restore'),
  snapshot_purged: entity('Purge'),

  template_build_requested: entity('Build Request'),
  template_built: entity(1),
  template_build_failed: entity(1, { ...MEDIUM, isFailure: true }),
  template_deleted: entity(4),

  network_destination_used: network(6),
  network_destination_denied: network(5, { ...LOW, isFailure: true }),
  network_secret_withheld: network(5, { ...MEDIUM, isFailure: true }),
  network_record_cut: entity('Network Record Cut', LOW),
  network_record_changed: entity(3, LOW),

  volume_created: entity(1),
  volume_updated: entity(3),
  volume_deletion_scheduled: entity(4),
  volume_restored: entity('Restore'),
  volume_purged: entity('Purge'),

  secrets_resealed: entity(3),
  secrets_forgotten: entity(4, LOW),

  registry_credential_created: entity(1),
  registry_credential_updated: entity(3),
  registry_credential_deleted: entity(4),
  registry_credential_tested: call('Test'),

  webhook_created: entity(1),
  webhook_updated: entity(3),
  webhook_deleted: entity(4),
  webhook_secret_rotated: entity(3),
  webhook_tested: call('Test'),
  webhook_redelivery_requested: call('Redeliver'),
  webhook_disabled: entity(9, MEDIUM),

  events_exported: call(2),
  event_key_rotated: entity(3),
  event_retention_changed: entity(3, LOW),
  event_command_lines_changed: entity(3, LOW),
  events_dropped: entity(4, LOW),
};

/** The types of entities and resources, by the category of the event. */
export const ENTITY_TYPES: Record<string, string> = {
  org: 'Organization',
  quota: 'Quota',
  billing: 'Price Book',
  member: 'User',
  api_key: 'API Key',
  sandbox: 'Sandbox',
  network: 'Sandbox Network',
  snapshot: 'Snapshot',
  template: 'Template',
  volume: 'Volume',
  secret: 'Secrets',
  webhook: 'Webhook',
  event: 'Audit Log',
};
