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
    path: '/audit',
    title: 'Audit',
    isListed: true,
    load: () => import('./audit/audit').then((module) => module.Audit),
  },
];
