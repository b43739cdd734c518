import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { expect, test } from 'vitest';
import { ROLES, ROLE_NAMES, type Role } from '../../src/access/roles.js';
import { covers, type RouteScope } from '../../src/access/scopes.js';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { newMember, newToken, signInMember } from '../support/members.js';
import { OPEN_HOSTS } from '../support/preview-service.js';
import { describeBrowser, enterBrowser } from './browser.js';
import { furnish, openPage, PATHS, pendingRequests, read, SOURCE } from './every-page.js';
import { useConsole } from './use-console.js';

const document = JSON.parse(readFileSync(join(PACKAGE_ROOT, 'openapi.json'), 'utf8')) as {
  paths: Record<string, Record<string, { 'x-required-scope'?: RouteScope }>>;
};

function scopeOf(operation: string): RouteScope {
  const [method, path] = operation.split(' ') as [string, string];
  const found = document.paths[path]?.[method.toLowerCase()];
  if (!found) throw new Error(`openapi.json has no ${operation}`);
  return found['x-required-scope'] ?? 'any';
}

/** The changes that the code of the console sends. */
const CHANGES = new Set(
  readdirSync(SOURCE, { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.tsx') || (file.endsWith('.ts') && !file.endsWith('api-types.ts')))
    .flatMap((file) => [...read(file).matchAll(/'((?:POST|PUT|PATCH|DELETE) \/v1\/[^']+)'/g)])
    .map(([, operation]) => operation!),
);

/** The role "member" has the scopes of a developer. */
const DISTINCT_ROLES = ROLE_NAMES.filter((role) => role !== 'member');

/** The operation of a line for curl. Undefined: the line calls another program. */
function operationOf(line: string): string | undefined {
  const [, address] = /^curl .*?(\/v1\/[^\s?"]+)/.exec(line) ?? [];
  if (address === undefined) return undefined;
  const method = / -X (\w+)/.exec(line)?.[1] ?? (line.includes(" -d '") ? 'POST' : 'GET');
  const found = Object.keys(document.paths).find((path) =>
    new RegExp(`^${path.replaceAll(/\{[^}]+\}/g, '[^/]+')}$`).test(address),
  );
  if (found === undefined) throw new Error(`openapi.json has no path of ${line}`);
  return `${method} ${found}`;
}

interface Control {
  /** The path of the pages. */
  at: RegExp;
  /** The whole accessible name. */
  name: RegExp;
  /** The operations to which it leads, beside those that read the page. */
  leadsTo: readonly string[];
}

const S = '/v1/sandboxes/{sandbox_id}';
const control = (at: RegExp, name: RegExp, ...leadsTo: string[]): Control => ({ at, name, leadsTo });

/** Every button of every page that needs more than the page itself. The first that fits counts. */
const CONTROLS: readonly Control[] = [
  control(/^\/$/, /^Create a sandbox$/, 'POST /v1/sandboxes'),
  control(/^\/sandboxes$/, /^Create$/, 'POST /v1/sandboxes'),
  control(/^\/sandboxes$/, /^Start$/, `POST ${S}/start`),
  control(/^\/sandboxes$/, /^Stop$/, `POST ${S}/stop`),
  control(/^\/sandboxes$/, /^Restart$/, `POST ${S}/restart`),
  control(/^\/sandboxes$/, /^Delete$/, `DELETE ${S}`),
  control(/^\/sandboxes\/:id\/files$/, /^Download .+$/, `GET ${S}/files/content`),
  control(/^\/sandboxes\/:id\/files$/, /^(Upload|Delete .+|New)$/, `PUT ${S}/files/content`),
  control(/^\/sandboxes\/:id/, /^Duplicate$/, 'POST /v1/sandboxes'),
  control(/^\/sandboxes\/:id/, /^Fork$/, `POST ${S}/fork`),
  control(/^\/sandboxes\/:id/, /^Snapshot$/, 'POST /v1/snapshots'),
  control(/^\/sandboxes\/:id/, /^Start$/, `POST ${S}/start`),
  control(/^\/sandboxes\/:id/, /^Stop$/, `POST ${S}/stop`),
  // The log has a button of this name.
  control(/^\/sandboxes\/:id(?!\/logs)/, /^Pause$/, `POST ${S}/pause`),
  control(/^\/sandboxes\/:id/, /^Resume$/, `POST ${S}/resume`),
  control(/^\/sandboxes\/:id/, /^Restart$/, `POST ${S}/restart`),
  control(/^\/sandboxes\/:id/, /^Delete$/, `DELETE ${S}`),
  control(/^\/sandboxes\/:id\/terminal$/, /terminal/i, `POST ${S}/terminal-tickets`),
  control(/^\/sandboxes\/:id\/sessions$/, /^End /, `DELETE ${S}/sessions/{session_id}`),
  control(/^\/sandboxes\/:id\/previews$/, /^Open port$/, `POST ${S}/previews`),
  control(/^\/sandboxes\/:id\/previews$/, /^Revoke /, `DELETE ${S}/previews/{preview_id}`),
  control(/^\/pools$/, /^Create$/, 'PUT /v1/pools/{name}'),
  control(/^\/pools\/:name$/, /^Change$/, 'PUT /v1/pools/{name}'),
  control(/^\/pools\/:name$/, /^Delete$/, 'DELETE /v1/pools/{name}'),
  control(/^\/snapshots\/:id$/, /^Start a sandbox$/, 'POST /v1/sandboxes'),
  control(/^\/snapshots\/:id$/, /^Delete$/, 'DELETE /v1/snapshots/{id}'),
  control(/^\/snapshots\/:id$/, /^Restore$/, 'POST /v1/snapshots/{id}/restore'),
  control(/^\/snapshots\/:id$/, /^Export$/, 'GET /v1/snapshots/{id}/export'),
  control(/^\/templates$/, /^Create$/, 'POST /v1/templates'),
  control(/^\/templates\/:id$/, /^Start a sandbox$/, 'POST /v1/sandboxes'),
  control(/^\/templates\/:id$/, /^(Delete|Cancel the build)$/, 'DELETE /v1/templates/{id}'),
  control(/^\/volumes$/, /^Create$/, 'POST /v1/volumes'),
  control(/^\/volumes\/:id$/, /^Change$/, 'PATCH /v1/volumes/{id}'),
  control(/^\/volumes\/:id$/, /^Delete$/, 'DELETE /v1/volumes/{id}'),
  control(/^\/volumes\/:id$/, /^Restore$/, 'POST /v1/volumes/{id}/restore'),
  control(/^\/volumes\/:id$/, /^(Upload|Delete .+|New)$/, 'PUT /v1/volumes/{id}/files/content'),
  control(/^\/budgets$/, /^Create$/, 'POST /v1/budgets'),
  control(/^\/budgets$/, /^Change /, 'PATCH /v1/budgets/{budget_id}'),
  control(/^\/budgets$/, /^Delete /, 'DELETE /v1/budgets/{budget_id}'),
  control(/^\/keys$/, /^Create$/, 'POST /v1/keys'),
  control(/^\/keys$/, /^Rotate /, 'POST /v1/keys/{id}/rotate'),
  control(/^\/keys$/, /^Revoke /, 'DELETE /v1/keys/{id}'),
  control(/^\/tokens$/, /^Create$/, 'POST /v1/tokens'),
  control(/^\/tokens$/, /^Revoke /, 'DELETE /v1/tokens/{token_id}'),
  control(/^\/members$/, /^Invite$/, 'POST /v1/invitations'),
  control(/^\/members$/, /^Change /, 'PATCH /v1/members/{member_id}'),
  control(/^\/members$/, /^Remove /, 'DELETE /v1/members/{member_id}'),
  control(/^\/members$/, /^Revoke the invitation /, 'DELETE /v1/invitations/{invitation_id}'),
  control(/^\/webhooks$/, /^Create$/, 'POST /v1/webhooks'),
  control(/^\/webhooks\/:id$/, /^Send a test$/, 'POST /v1/webhooks/{webhook_id}/test'),
  control(/^\/webhooks\/:id$/, /^(Change|Disable|Enable)$/, 'PATCH /v1/webhooks/{webhook_id}'),
  control(/^\/webhooks\/:id$/, /^Rotate the secret$/, 'POST /v1/webhooks/{webhook_id}/rotate-secret'),
  control(/^\/webhooks\/:id$/, /^Delete$/, 'DELETE /v1/webhooks/{webhook_id}'),
  control(
    /^\/webhooks\/:id$/,
    /^Redeliver /,
    'POST /v1/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver',
  ),
];

/** A button that leads to no more than its page, or changes only what is shown. */
const HARMLESS: readonly Control[] = [
  control(/^\/(|usage|audit|account|device|organization|operations)$/, /./),
  control(
    /./,
    /^(Filters?|Saved.*|View|Deleted ones too|Next.*|Previous.*|First.*|Newest.*|Parent folder|Remove.*filter.*)$/,
  ),
  // The simulated engine cannot be entered: the tab has its refusal.
  control(/^\/sandboxes\/:id\/files$/, /^Try again$/),
  control(/./, /^(Copy.*|Download.*|Search.*|Pause.*|Follow.*|Wrap.*|Show.*|Hide.*|\+\d+, show all)$/),
];

/** Where the roles need a state that the pages do not have at once. The pages of these operations have other tests. */
const NOT_SHOWN = new Set([
  'POST /v1/sandboxes/{sandbox_id}/resume',
  'DELETE /v1/sandboxes/{sandbox_id}/sessions/{session_id}',
  'POST /v1/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver',
]);

describeBrowser('the buttons of the console', () => {
  const its = useConsole({ previews: OPEN_HOSTS() });

  /** The names of the buttons, and of the links that look like one. */
  async function buttonsOf(page: Page): Promise<string[]> {
    const shown = page.locator(
      'main :is(button:not(.sort, .link, .quiet, .choices *), a.button, label.button)',
    );
    const names = await shown.evaluateAll((all: any[]): string[] =>
      all
        .filter((one) => one.checkVisibility() && !one.disabled)
        .map((one) => (one.ariaLabel ?? one.textContent).trim().replaceAll(/\s+/g, ' ')),
    );
    return [...new Set(names)];
  }

  test('lead each role to all that its scopes open, and to nothing else', async () => {
    const { client, service } = its;
    const { page } = its.visitor;
    const addresses = await furnish(service, client);
    const pending = pendingRequests(page);
    const unknown = new Set<string>();
    /** The operations that the owner reaches at each address. */
    const ownerReaches = new Map<string, Set<string>>();
    const wrong: string[] = [];
    // The owner comes first.
    for (const role of DISTINCT_ROLES) {
      const member = await newMember(service, client.org.id, role);
      await newToken(service, client.org.id, member);
      await enterBrowser(its.visitor, service.url, await signInMember(service, client.org.id, member));
      await page.goto('/console/');
      const { scopes } = ROLES[role];
      for (const [address, path] of addresses) {
        await openPage(page, address, pending);
        if (path === '/sandboxes' && covers(scopes, 'sandboxes:write')) {
          await page.getByRole('checkbox').first().check();
        }
        const reached = new Set<string>();
        for (const button of await buttonsOf(page)) {
          const fits = (one: Control) => one.at.test(path) && one.name.test(button);
          const found = CONTROLS.find(fits);
          if (!found && !HARMLESS.some(fits)) unknown.add(`${path}: ${button}`);
          for (const operation of found?.leadsTo ?? []) reached.add(operation);
        }
        if (role === 'owner') ownerReaches.set(address, reached);
        const opened = [...ownerReaches.get(address)!].filter((operation) =>
          covers(scopes, scopeOf(operation)),
        );
        for (const operation of reached)
          if (!opened.includes(operation)) wrong.push(`${role} at ${path} must not reach ${operation}`);
        for (const operation of opened)
          if (!reached.has(operation)) wrong.push(`${role} at ${path} must reach ${operation}`);
      }
    }
    const all = new Set([...ownerReaches.values()].flatMap((reached) => [...reached]));
    const missing = [...CHANGES].filter((operation) => !all.has(operation) && !NOT_SHOWN.has(operation));
    expect({ wrong, unknown: [...unknown].toSorted(), missing: missing.toSorted() }).toEqual({
      wrong: [],
      unknown: [],
      missing: [],
    });
  }, 900_000);

  test('stand on empty pages beside commands that the role may use, and no others', async () => {
    const { client, service } = its;
    const { page } = its.visitor;
    const pending = pendingRequests(page);
    const paths = PATHS.filter((path) => !path.includes(':'));
    /** The operations of the commands of each role. */
    const shown = new Map<Role, Set<string>>();
    const wrong: string[] = [];
    for (const role of DISTINCT_ROLES) {
      const member = await newMember(service, client.org.id, role);
      await enterBrowser(its.visitor, service.url, await signInMember(service, client.org.id, member));
      await page.goto('/console/');
      const { scopes } = ROLES[role];
      const operations = new Set<string>();
      for (const path of paths) {
        await openPage(page, path, pending);
        for (const line of await page.locator('main pre[aria-label="command"]').allTextContents()) {
          const operation = operationOf(line);
          if (operation === undefined) continue;
          operations.add(operation);
          if (!covers(scopes, scopeOf(operation))) wrong.push(`${role} at ${path} must not see ${line}`);
        }
      }
      shown.set(role, operations);
    }
    expect(wrong).toEqual([]);
    const creations = (role: Role) =>
      [...shown.get(role)!].filter((one) => !one.startsWith('GET ')).toSorted();
    // Every organization has a host volume: its page Volumes is never empty.
    const ofSandboxes = [
      'POST /v1/sandboxes',
      'POST /v1/snapshots',
      'POST /v1/templates',
      'PUT /v1/pools/{name}',
    ];
    expect(creations('developer')).toEqual(ofSandboxes);
    expect(creations('owner')).toEqual(['POST /v1/budgets', ...ofSandboxes, 'POST /v1/webhooks'].toSorted());
    for (const role of ['viewer', 'finance', 'auditor'] as const)
      expect([role, creations(role)]).toEqual([role, []]);
  }, 900_000);
});
