import { afterAll, beforeAll, expect, test } from 'vitest';
import { clientOf, importText, line, toText } from '../../support/import-lines.js';
import { startTestService, type TestService } from '../../support/service.js';

let service: TestService;
beforeAll(async () => {
  service = await startTestService({ worker: false });
});
afterAll(() => service.close());

/** An organization, and an event with this payload as literal text. */
function fileWith(payload: string) {
  const org = line.org();
  const event = line.event(org, { payload: 'PAYLOAD' });
  return { org, event, text: toText([org, event]).replace('"PAYLOAD"', payload) };
}

test('numbers that a double holds come back in any spelling, and so do strings that look like numbers', async () => {
  const payload =
    '[0,1.0,1E2,1e21,100000000000000000000,0.1,1.7976931348623157e308,5e-324,9007199254740992,-1.50e-7,"1e400","-0"]';
  const { org, event, text } = fileWith(payload);
  expect(await importText(service, text)).toMatchObject({ committed: true, bad: [] });
  const { body } = await (await clientOf(service, org)).get(`/v1/events/${event['id']}`);
  expect(body.payload).toEqual(JSON.parse(payload));
});

test.each([
  ['{"a":[1,1e400]}', 'payload.a[1] is 1e400'],
  ['-1e400', 'payload is -1e400'],
  ['1e-400', 'payload is 1e-400'],
  ['{"at":{"ns":1795255620123456789}}', 'payload.at.ns is 1795255620123456789'],
  ['9007199254740993', 'payload is 9007199254740993'],
  ['[0.10000000000000000555]', 'payload[0] is 0.10000000000000000555'],
  ['{"a":-0}', 'payload.a is -0'],
  ['{"a":-0.0e3}', 'payload.a is -0.0e3'],
])('the number in %s is refused by field and value', async (payload, found) => {
  const { text } = fileWith(payload);
  expect(await importText(service, text)).toMatchObject({
    committed: false,
    bad: [{ line: 2, reason: `${found}, which would be changed: write it as a string` }],
  });
});

test.each(['{"a":{"b":1,"b":2}}', '{"b":1,"a":[{"b":1}],"\\u0062":1}'])(
  'a key that an object has twice is refused: %s',
  async (payload) => {
    const { bad } = await importText(service, fileWith(payload).text);
    expect(bad).toEqual([{ line: 2, reason: 'has the key "b" twice: give it once' }]);
  },
);

test('objects beside and within each other may have the same keys', async () => {
  const { text } = fileWith('{"b":{"b":[{"b":1},{"b":"\\"b\\":{"}]},"c":{"b":1}}');
  expect(await importText(service, text)).toMatchObject({ committed: true, bad: [] });
});
