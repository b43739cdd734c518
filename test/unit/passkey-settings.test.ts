import { describe, expect, test } from 'vitest';
import { passkeySettings, type PasskeySettings } from '../../src/config/passkey-settings.js';
import { ExplainedError } from '../../src/lib/explained-error.js';

const at = (publicUrl: string | undefined, passkeys: 'auto' | 'on' | 'off' = 'auto', oidcIssuer?: string) =>
  passkeySettings({ publicUrl, passkeys, oidcIssuer });
const isOff = (settings: PasskeySettings) => 'off' in settings;

describe('passkeys', () => {
  test.each([
    ['https://sandkeep.example.com', 'sandkeep.example.com'],
    ['https://sandkeep.example.com:8443', 'sandkeep.example.com'],
    ['http://localhost:8080', 'localhost'],
    ['http://sandkeep.localhost:8080', 'sandkeep.localhost'],
  ])('are bound to the host of %s', (url, id) => {
    expect(at(url)).toEqual({ id, origin: url });
    expect(at(url, 'on', 'https://login.example.com')).toEqual({ id, origin: url });
  });

  test('are for localhost without a public URL', () => {
    expect(at(undefined)).toEqual({ id: 'localhost', origin: undefined });
  });

  test.each([
    'http://sandkeep.example.com',
    'https://10.0.0.5',
    'https://[2001:db8::1]',
    'http://127.0.0.1:8080',
  ])('are refused at %s, where browsers have none', (url) => {
    expect(isOff(at(url))).toBe(true);
    expect(() => at(url, 'on')).toThrow(ExplainedError);
    expect(isOff(at(url, 'off'))).toBe(true);
  });

  test('are off beside a provider, and where the operator says so', () => {
    expect(isOff(at('https://sandkeep.example.com', 'auto', 'https://login.example.com'))).toBe(true);
    expect(isOff(at('https://sandkeep.example.com', 'off'))).toBe(true);
  });
});
