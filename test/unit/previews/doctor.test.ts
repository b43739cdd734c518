import { expect, test } from 'vitest';
import { inspectPreviews } from '../../../src/cli/doctor-previews.js';
import { DEFAULT_CONFIG, type Config } from '../../../src/config/options.js';
import { Authority, pairFiles } from '../../support/certificates.js';

const authority = new Authority();
const inspect = (options: Partial<Config>) => inspectPreviews({ ...DEFAULT_CONFIG, ...options });
const DOMAIN = 'preview.example.com';

test('doctor says whether the domain of previews and its certificate fit', () => {
  const of = (names: string[], days = 30) => {
    const { cert, key } = pairFiles(authority.issue({ names, days }));
    return inspect({ previewDomain: DOMAIN, previewTlsCert: cert, previewTlsKey: key });
  };
  expect(inspect({})).toEqual([]);
  expect(inspect({ previewHost: 'none', previewDomain: DOMAIN })).toEqual([]);
  expect(inspect({ previewDomain: DOMAIN })).toMatchObject([{ state: 'ok' }]);
  expect(of([`*.${DOMAIN}`])).toMatchObject([{ state: 'ok' }]);
  expect(of([`*.${DOMAIN}`], -1)).toMatchObject([{ state: 'broken' }]);
  expect(of([DOMAIN])).toMatchObject([{ state: 'broken', remedy: `issue one for *.${DOMAIN}` }]);
  expect(inspect({ previewDomain: DOMAIN, advertiseUrl: `https://api.${DOMAIN}` })).toMatchObject([
    { state: 'broken', found: expect.stringContaining(`the API is at api.${DOMAIN}`) },
  ]);
  expect(inspect({ previewTlsCert: '/nonexistent' })).toMatchObject([{ state: 'broken' }]);
  const missing = inspect({ previewTlsCert: '/nonexistent', previewTlsKey: '/nonexistent' });
  expect(missing).toMatchObject([{ found: expect.stringContaining('correct --preview-tls-cert') }]);
});
