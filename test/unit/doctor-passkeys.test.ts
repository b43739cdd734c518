import { expect, test } from 'vitest';
import { inspectPasskeys } from '../../src/cli/doctor-passkeys.js';
import type { StoredInstallation } from '../../src/cli/doctor-installation.js';

const HTTPS = 'https://sandkeep.example.com';
const holding = (passkeys: number) => ({ passkeys }) as StoredInstallation;

test.each([
  [
    { passkeys: 'auto', publicUrl: HTTPS },
    2,
    'ok',
    `members sign in with them at ${HTTPS}; 2 passkeys in the database`,
  ],
  [{ passkeys: 'auto' }, undefined, 'ok', /^members sign in with them at http:\/\/localhost alone; [^;]+$/],
  [{ passkeys: 'auto', publicUrl: 'https://192.0.2.7' }, 0, 'missing', /an IP address has no passkeys/],
  [{ passkeys: 'auto', publicUrl: 'http://sandkeep.example.com' }, 0, 'missing', /only over https/],
  [{ passkeys: 'on', publicUrl: 'http://sandkeep.example.com' }, 0, 'broken', /--passkeys on cannot work/],
  [
    { passkeys: 'off', publicUrl: HTTPS },
    0,
    'ok',
    'The operator has not turned passkeys on; 0 passkeys in the database',
  ],
  [{ passkeys: 'off', publicUrl: HTTPS }, 1, 'missing', /; 1 passkey in the database$/],
  [
    { passkeys: 'auto', publicUrl: HTTPS, oidcIssuer: 'https://login.example.com' },
    0,
    'ok',
    /not turned passkeys on/,
  ],
  [
    { passkeys: 'auto', publicUrl: HTTPS, oidcIssuer: 'https://login.example.com' },
    3,
    'missing',
    /3 passkeys/,
  ],
  [
    { passkeys: 'on', publicUrl: HTTPS, oidcIssuer: 'https://login.example.com' },
    3,
    'ok',
    /^members sign in/,
  ],
] as const)('the options %j with %s passkeys are %s', (given, held, state, found) => {
  const options = { publicUrl: undefined, oidcIssuer: undefined, ...given };
  const finding = inspectPasskeys(options, held === undefined ? undefined : holding(held));
  expect(finding).toMatchObject({
    check: 'passkeys',
    state,
    found: typeof found === 'string' ? found : expect.stringMatching(found),
  });
  expect(finding.remedy !== undefined).toBe(state !== 'ok');
});
