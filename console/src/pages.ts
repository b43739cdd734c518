import type { ComponentType } from 'preact';
import type { Scope } from '../../src/access/scopes';
import { may } from './lib/session';
import { Overview } from './overview/overview';
import { Sandboxes } from './sandboxes/sandboxes';

/** The groups of the navigation, in their order. The first has no heading. */
export const GROUPS = ['', 'Compute', 'Insight', 'Access'] as const;

interface PageEntry {
  /** Below `/console`. Parameters begin with a colon. */
  path: string;
  title: string;
  /** Where the navigation and the command palette list it. Undefined: nowhere. */
  group?: (typeof GROUPS)[number];
  /** Without it nothing on the page can be read: it is neither listed nor opened. Undefined: every session opens it. */
  scope?: Scope;
  load: () => Promise<ComponentType> | ComponentType;
}

/** Every page. The code of a page is loaded when it is opened, except that of the first two. */
export const PAGES: readonly PageEntry[] = [
  { path: '/', title: 'Overview', group: '', load: () => Overview },
  {
    path: '/sandboxes',
    title: 'Sandboxes',
    group: 'Compute',
    scope: 'sandboxes:read',
    load: () => Sandboxes,
  },
  {
    path: '/sandboxes/:id/:tab?',
    title: 'Sandbox',
    scope: 'sandboxes:read',
    load: () => import('./sandbox/sandbox').then((module) => module.Sandbox),
  },
  {
    path: '/pools',
    title: 'Pools',
    group: 'Compute',
    scope: 'sandboxes:read',
    load: () => import('./pools/pools').then((module) => module.Pools),
  },
  {
    path: '/pools/:name',
    title: 'Pool',
    scope: 'sandboxes:read',
    load: () => import('./pools/pool').then((module) => module.Pool),
  },
  {
    path: '/snapshots',
    title: 'Snapshots',
    group: 'Compute',
    scope: 'sandboxes:read',
    load: () => import('./snapshots/snapshots').then((module) => module.Snapshots),
  },
  {
    path: '/snapshots/:id',
    title: 'Snapshot',
    scope: 'sandboxes:read',
    load: () => import('./snapshots/snapshot').then((module) => module.Snapshot),
  },
  {
    path: '/operations',
    title: 'Operations',
    group: 'Compute',
    scope: 'sandboxes:read',
    load: () => import('./operations/operations').then((module) => module.Operations),
  },
  {
    path: '/templates',
    title: 'Templates',
    group: 'Compute',
    scope: 'sandboxes:read',
    load: () => import('./templates/templates').then((module) => module.Templates),
  },
  {
    path: '/templates/:id',
    title: 'Template',
    scope: 'sandboxes:read',
    load: () => import('./templates/template').then((module) => module.Template),
  },
  {
    path: '/volumes',
    title: 'Volumes',
    group: 'Compute',
    scope: 'volumes:read',
    load: () => import('./volumes/volumes').then((module) => module.Volumes),
  },
  {
    path: '/volumes/:id',
    title: 'Volume',
    scope: 'volumes:read',
    load: () => import('./volumes/volume').then((module) => module.Volume),
  },
  {
    path: '/usage',
    title: 'Usage',
    group: 'Insight',
    scope: 'billing:read',
    load: () => import('./usage/usage').then((module) => module.Usage),
  },
  {
    path: '/budgets',
    title: 'Budgets',
    group: 'Insight',
    scope: 'billing:read',
    load: () => import('./budgets/budgets').then((module) => module.Budgets),
  },
  {
    path: '/audit',
    title: 'Audit',
    group: 'Insight',
    scope: 'events:read',
    load: () => import('./audit/audit').then((module) => module.Audit),
  },
  {
    path: '/keys',
    title: 'Keys',
    group: 'Access',
    scope: 'keys:read',
    load: () => import('./keys/keys').then((module) => module.Keys),
  },
  {
    path: '/tokens',
    title: 'Personal tokens',
    group: 'Access',
    load: () => import('./tokens/tokens').then((module) => module.Tokens),
  },
  {
    path: '/device',
    title: 'Sign a device in',
    load: () => import('./device/device').then((module) => module.Device),
  },
  {
    path: '/members',
    title: 'Members',
    group: 'Access',
    scope: 'org:admin',
    load: () => import('./members/members').then((module) => module.Members),
  },
  {
    path: '/webhooks',
    title: 'Webhooks',
    group: 'Access',
    scope: 'org:admin',
    load: () => import('./webhooks/webhooks').then((module) => module.Webhooks),
  },
  {
    path: '/webhooks/:id',
    title: 'Webhook',
    scope: 'org:admin',
    load: () => import('./webhooks/webhook').then((module) => module.WebhookPage),
  },
  {
    path: '/organization',
    title: 'Organization',
    group: 'Access',
    load: () => import('./organization/organization').then((module) => module.Organization),
  },
  {
    path: '/account',
    title: 'Account',
    load: () => import('./account/account').then((module) => module.Account),
  },
];

/** Those of the navigation and of the command palette, for the scopes of the session. */
export function listedPages(): readonly PageEntry[] {
  return PAGES.filter(({ group, scope }) => group !== undefined && (scope === undefined || may(scope)));
}
