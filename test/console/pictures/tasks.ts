import type { Page } from 'playwright-core';
import { IMAGES } from './images.js';
import type { Newcomer } from './newcomer.js';

/** A first task: it begins on the overview, and ends when the person sees the result. */
interface Task {
  name: string;
  /** `shot`: takes the picture of the step that shows the way. */
  run: (person: Newcomer, shot: () => Promise<void>) => Promise<void>;
}

const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true });
const link = (page: Page, name: string) => page.getByRole('link', { name, exact: true });
const place = (page: Page, name: string) =>
  page.getByRole('navigation', { name: 'Pages of the console' }).getByRole('link', { name, exact: true });

export const TASKS: readonly Task[] = [
  {
    name: 'run-code',
    async run(person, shot) {
      const { page } = person;
      await person.click(link(page, 'Create a sandbox'));
      const form = page.getByRole('dialog');
      await person.type('first-try', form.getByLabel('name (required)'));
      await person.type(IMAGES.agent, form.getByLabel('image reference (required)'));
      await person.click(form.getByRole('button', { name: 'Create', exact: true }));
      await page.getByRole('heading', { level: 1, name: 'first-try' }).waitFor();
      await page.getByRole('status').getByText('running').waitFor();
      await person.click(link(page, 'Terminal'));
      await person.click(button(page, 'Open a terminal'));
      await page.getByText('● connected').waitFor();
      await person.type('echo hello; ls /app\n');
      await page.locator('.xterm-rows').getByText('requirements.txt').first().waitFor();
      await shot();
    },
  },
  {
    name: 'why-it-failed',
    async run(person, shot) {
      const { page } = person;
      const attention = page.getByRole('region', { name: 'Needs attention' });
      await shot();
      await person.click(attention.getByRole('link', { name: 'agent-nightly' }));
      await page.getByText(/^Latest failure/).waitFor();
    },
  },
  {
    name: 'what-waits',
    async run(person, shot) {
      const { page } = person;
      await person.click(page.getByRole('link', { name: '2 starting' }));
      await page.getByRole('row', { name: 'train-embeddings' }).getByText(/vCPU/).first().waitFor();
      await shot();
    },
  },
  {
    name: 'stop-a-team',
    async run(person, shot) {
      const { page } = person;
      await person.click(place(page, 'Sandboxes'));
      await person.click(button(page, 'Filter'));
      await person.type('team=web', page.getByLabel('Labels'));
      await page.getByRole('list', { name: 'Filters in force' }).getByText('team=web').waitFor();
      await person.press('Escape');
      await person.click(page.getByLabel('Select all of this page'));
      await shot();
      const selected = page.getByRole('group', { name: 'Selected sandboxes' });
      await person.click(selected.getByRole('button', { name: 'Stop', exact: true }));
      await page.getByRole('region', { name: 'Results' }).getByText('web-preview-517 stops').waitFor();
    },
  },
  {
    name: 'keep-a-list',
    async run(person, shot) {
      const { page } = person;
      await person.click(page.getByRole('link', { name: /\d+ running/ }));
      await person.type('agent', page.getByLabel('Name contains'));
      await page.getByRole('link', { name: 'notebook-chen' }).waitFor({ state: 'detached' });
      await person.click(page.getByRole('button', { name: 'Saved' }));
      await person.type('Agents that run', page.getByLabel('Name of this filter'));
      await shot();
      await person.press('Enter');
      await button(page, 'Saved: Agents that run').waitFor();
    },
  },
  {
    name: 'another-with-more-memory',
    async run(person, shot) {
      const { page } = person;
      await person.press('Control+k');
      await person.type('amber');
      await page.getByRole('option', { name: /Sandbox agent-amber/ }).waitFor();
      await person.press('Enter');
      await person.click(link(page, 'Duplicate'));
      const form = page.getByRole('dialog', { name: 'Create a sandbox' });
      await person.type('1024', form.getByLabel('resources memory mib'));
      await shot();
      await person.click(form.getByRole('button', { name: 'Create', exact: true }));
      await page.getByRole('heading', { level: 1, name: 'agent-amber-copy' }).waitFor();
      await page.getByText('1 GiB', { exact: true }).waitFor();
    },
  },
  {
    name: 'call-it-from-a-program',
    async run(person, shot) {
      const { page } = person;
      await person.click(place(page, 'Keys'));
      await person.click(button(page, 'Create'));
      const form = page.getByRole('dialog', { name: 'Create a key' });
      await person.type('my program', form.getByLabel('Name (required)'));
      await person.click(form.getByRole('button', { name: 'Create', exact: true }));
      await page.getByRole('dialog', { name: 'The key my program' }).getByText('curl').first().waitFor();
      await shot();
    },
  },
  {
    name: 'who-deleted-it',
    async run(person, shot) {
      const { page } = person;
      await person.click(place(page, 'Audit'));
      await person.type('sandbox_destroyed', page.getByLabel('Value'));
      await person.press('Enter');
      await page.getByRole('table').getByText('web-preview-460').first().waitFor();
      await shot();
    },
  },
  {
    name: 'cost-of-each-team',
    async run(person, shot) {
      const { page } = person;
      await person.click(place(page, 'Usage'));
      await person.type('team', page.getByLabel(/^By labels/));
      await person.press('Enter');
      await page
        .getByRole('row', { name: /research/ })
        .first()
        .waitFor();
      await shot();
    },
  },
  {
    name: 'prove-the-log',
    async run(person, shot) {
      const { page } = person;
      await person.click(page.getByRole('link', { name: 'Verify the audit log' }));
      await person.click(button(page, 'Verify the chain'));
      await page.getByRole('region', { name: 'Verification' }).getByRole('status').waitFor();
      await shot();
    },
  },
];
