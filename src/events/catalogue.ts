/** Every event this service writes, with its category. History that is imported may bring others. */
export const EVENT_CATEGORIES = {
  org_created: 'org',
  /** What the organization may have was changed. */
  quota_changed: 'quota',
  member_added: 'member',
  member_removed: 'member',
  api_key_created: 'api_key',
  api_key_revoked: 'api_key',
  /** A sandbox was made; it has not been started. */
  sandbox_created: 'sandbox',
  /** A start was asked for and admitted. */
  sandbox_start_requested: 'sandbox',
  /** The runtime runs it. */
  sandbox_started: 'sandbox',
  /** A stop was asked for, by a caller or because its time was up. */
  sandbox_stop_requested: 'sandbox',
  /** Its run ended in order. */
  sandbox_stopped: 'sandbox',
  /** Its run could not start, crashed or was lost. */
  sandbox_failed: 'sandbox',
  /** Its name or its slug was changed. */
  sandbox_renamed: 'sandbox',
  /** Its labels were replaced. */
  sandbox_relabelled: 'sandbox',
  /** A caller deleted it. */
  sandbox_destroyed: 'sandbox',
  /** An ephemeral sandbox ended and went. */
  sandbox_removed: 'sandbox',
  /** The run of a sandbox that was deleted while it ran came to its end. */
  sandbox_run_closed: 'sandbox',
  volume_created: 'volume',
  /** Its cap or its labels were changed. */
  volume_updated: 'volume',
  volume_deletion_scheduled: 'volume',
  /** A deletion was taken back in time. */
  volume_restored: 'volume',
  /** The time to restore it is over; its data is gone. */
  volume_purged: 'volume',
} as const;

export type EventType = keyof typeof EVENT_CATEGORIES;
