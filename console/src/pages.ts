import type { ComponentType } from 'preact';
import { Sandboxes } from './sandboxes/sandboxes';

interface PageEntry {
  /** Below `/console`. Parameters begin with a colon. */
  path: string;
  title: string;
  /** In the navigation and in the command palette. */
  isListed: boolean;
  load: () => Promise<ComponentType> | ComponentType;
}

/** Every page, by name. A page is loaded when it is opened, except the first. */
export const PAGES: readonly PageEntry[] = [
  { path: '/', title: 'Sandboxes', isListed: true, load: () => Sandboxes },
  {
    path: '/sandboxes/:id/:tab?',
    title: 'Sandbox',
    isListed: false,
    load: () => import('./sandbox/sandbox').then((module) => module.Sandbox),
  },
  {
    path: '/pools',
    title: 'Pools',
    isListed: true,
    load: () => import('./pools/pools').then((module) => module.Pools),
  },
  {
    path: '/pools/:name',
    title: 'Pool',
    isListed: false,
    load: () => import('./pools/pool').then((module) => module.Pool),
  },
  {
    path: '/volumes',
    title: 'Volumes',
    isListed: true,
    load: () => import('./volumes/volumes').then((module) => module.Volumes),
  },
  {
    path: '/volumes/:id',
    title: 'Volume',
    isListed: false,
    load: () => import('./volumes/volume').then((module) => module.Volume),
  },
  {
    path: '/usage',
    title: 'Usage',
    isListed: true,
    load: () => import('./usage/usage').then((module) => module.Usage),
  },
  {
    path: '/audit',
    title: 'Audit',
    isListed: true,
    load: () => import('./audit/audit').then((module) => module.Audit),
  },
  {
    path: '/keys',
    title: 'Keys',
    isListed: true,
    load: () => import('./keys/keys').then((module) => module.Keys),
  },
  {
    path: '/webhooks',
    title: 'Webhooks',
    isListed: true,
    load: () => import('./webhooks/webhooks').then((module) => module.Webhooks),
  },
  {
    path: '/webhooks/:id',
    title: 'Webhook',
    isListed: false,
    load: () => import('./webhooks/webhook').then((module) => module.WebhookPage),
  },
  {
    path: '/organization',
    title: 'Organization',
    isListed: true,
    load: () => import('./organization/organization').then((module) => module.Organization),
  },
];
