import type { KeyScope } from '../lib/api-types';

export const SCOPES: Record<KeyScope, string> = {
  'sandboxes:read': 'List sandboxes and read their logs',
  'sandboxes:write': 'Create, start, stop and delete sandboxes',
  'sandboxes:exec': 'Run commands in sandboxes, open terminals, read and write their files',
  'volumes:read': 'List volumes and read their files',
  'volumes:write': 'Create, change and delete volumes and their files',
  'events:read': 'Read the audit trail',
  'billing:read': 'Read usage and quotas',
  'keys:read': 'List keys',
  'keys:write': 'Create, rotate and revoke keys',
  'org:admin': 'Everything, with members and webhooks',
};

export const PRESETS: Record<string, readonly KeyScope[]> = {
  'Run sandboxes': ['sandboxes:write', 'sandboxes:exec', 'volumes:write'],
  'Read only': ['sandboxes:read', 'volumes:read', 'events:read', 'billing:read', 'keys:read'],
  Everything: ['org:admin'],
};
