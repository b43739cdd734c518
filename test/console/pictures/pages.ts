import type { Page } from 'playwright-core';
import type { Filled } from './service.js';

/** A picture of the console: the address, and the steps from there. */
interface Pictured {
  name: string;
  path: string;
  prepare?: (page: Page) => Promise<void>;
}

const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true });

/** Every page of the console with its dialogs, for a filled organization. */
export function picturesOf({ ids }: Filled): readonly Pictured[] {
  const amber = `/sandboxes/${ids['agent-amber']}`;
  const preview = `/sandboxes/${ids['web-preview-502']}`;
  return [
    { name: 'overview', path: '/' },
    { name: 'sandboxes', path: '/sandboxes' },
    {
      name: 'sandboxes-filtered',
      path: '/sandboxes?status=running&labels={"team":"research"}&filter=Research',
    },
    {
      name: 'sandboxes-filter-menu',
      path: '/sandboxes?status=running',
      prepare: (page) => button(page, 'Filter').click(),
    },
    { name: 'sandboxes-none', path: '/sandboxes?name_contains=nothing-has-this' },
    { name: 'sandboxes-create', path: '/sandboxes?create=form' },
    {
      name: 'sandboxes-selected',
      path: '/sandboxes',
      prepare: (page) => page.getByLabel('Select all of this page').check(),
    },
    { name: 'sandbox', path: amber },
    { name: 'sandbox-failed', path: `/sandboxes/${ids['agent-nightly']}` },
    { name: 'sandbox-waiting', path: `/sandboxes/${ids['train-embeddings']}` },
    { name: 'sandbox-out-of-memory', path: `/sandboxes/${ids['parse-archive']}` },
    { name: 'sandbox-runs', path: `${amber}/runs` },
    { name: 'sandbox-logs', path: `${amber}/logs` },
    {
      name: 'sandbox-terminal',
      path: `${amber}/terminal`,
      async prepare(page) {
        for (const [place, name] of ['Open a terminal', 'Open a new terminal'].entries()) {
          await button(page, name).click();
          await page.getByText('● connected').nth(place).waitFor();
        }
        await page.keyboard.type('ls -l /app && cat /app/config.yaml\n');
        await page.locator('.xterm-rows').getByText('log_level').waitFor();
      },
    },
    { name: 'sandbox-sessions', path: `${amber}/sessions` },
    { name: 'sandbox-files', path: `${amber}/files?folder=/app` },
    { name: 'sandbox-editor', path: `${amber}/files?folder=/app&file=/app/main.py` },
    { name: 'sandbox-previews', path: `${preview}/previews` },
    { name: 'sandbox-network', path: `/sandboxes/${ids['agent-crawler']}/network` },
    { name: 'sandbox-events', path: `${amber}/events` },
    { name: 'sandbox-usage', path: `${amber}/usage` },
    { name: 'sandbox-fork', path: `${amber}?fork=form` },
    { name: 'sandbox-missing', path: '/sandboxes/00000000-0000-4000-8000-000000000000' },
    { name: 'pools', path: '/pools' },
    { name: 'pool', path: '/pools/agents' },
    { name: 'snapshots', path: '/snapshots' },
    { name: 'snapshot', path: `/snapshots/${ids['snapshot']}` },
    { name: 'templates', path: '/templates' },
    { name: 'template', path: `/templates/${ids['template']}` },
    { name: 'volumes', path: '/volumes' },
    { name: 'volume', path: `/volumes/${ids['volume']}` },
    { name: 'usage', path: '/usage?label=team&metric=cost' },
    { name: 'budgets', path: '/budgets' },
    { name: 'audit', path: '/audit' },
    { name: 'keys', path: '/keys' },
    {
      name: 'keys-create',
      path: '/keys',
      prepare: (page) => button(page, 'Create').click(),
    },
    { name: 'tokens', path: '/tokens' },
    { name: 'members', path: '/members' },
    { name: 'webhooks', path: '/webhooks' },
    { name: 'webhook', path: `/webhooks/${ids['webhook']}` },
    { name: 'organization', path: '/organization' },
    { name: 'account', path: '/account' },
    { name: 'device', path: '/device' },
    { name: 'nowhere', path: '/no-such-page' },
    {
      name: 'commands',
      path: '/',
      prepare: (page) => page.keyboard.press('Control+k'),
    },
  ];
}
