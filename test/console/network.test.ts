import { expect, test } from 'vitest';
import { describeBrowser, expectPresentable, signInBrowser } from './browser.js';
import { useConsole } from './use-console.js';

describeBrowser('the network of a sandbox', () => {
  const suite = useConsole();

  test('the policy is in words, and refusals come while the page is open', async () => {
    const { client, service, visitor } = suite;
    const policy = {
      default_egress: 'deny',
      rules: [
        {
          direction: 'egress',
          destination: { domain_suffix: 'pypi.org' },
          action: 'allow',
          ports: [{ start: 443, end: 443 }],
          protocols: ['tcp'],
        },
        { direction: 'any', destination: { group: 'private' }, action: 'deny' },
      ],
    };
    const { status, body } = await client.post(
      '/v1/sandboxes',
      {
        name: 'web',
        image: { type: 'oci', reference: 'python:3.12' },
        resources: { vcpus: 1, memory_mib: 64 },
        network: { policy, record: true },
      },
      { start: true, wait_for: 'running', wait_timeout: 120 },
    );
    expect([status, body.status]).toEqual([200, 'running']);
    const { page } = visitor;
    await signInBrowser(page, client.key, `/console/sandboxes/${body.id}/network`);
    const panel = page.getByRole('region', { name: 'Policy' });
    await panel.getByText('0. Allow pypi.org and every name below it on port 443 by TCP').waitFor();
    await panel.getByText('1. Deny traffic from and to private addresses').waitFor();
    await page.getByText('Nothing was refused').waitFor();
    const denial = {
      sandbox: body.id,
      at: Date.now(),
      protocol: 'tls',
      address: '203.0.113.20',
      port: 443,
      rule: 'default',
    } as const;
    service.ctx.network.denied({
      ...denial,
      kind: 'request',
      name: '<b>files</b>.example.net',
      reason: 'no rule allows it',
      count: 3,
    });
    service.ctx.network.denied({
      ...denial,
      kind: 'secret',
      secret: 'API_KEY',
      reason: 'the host is not allowed',
    });
    const refused = page.getByRole('region', { name: 'Refusals' });
    await refused.getByText('<b>files</b>.example.net:443').waitFor();
    await refused.getByText('API_KEY: the host is not allowed').waitFor();
    await expectPresentable(page, 'sandbox-network');
    await page.getByRole('link', { name: 'Events' }).click();
    await page.getByText('Network refused: <b>files</b>.example.net port 443, no rule allows it').waitFor();
    await page
      .getByText('Secret withheld: API_KEY, 203.0.113.20 port 443, the host is not allowed')
      .waitFor();
  });
});
