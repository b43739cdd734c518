import { ApiError } from '../http/errors.js';
import { continueBody } from '../http/expect.js';
import { readJson } from '../http/read-json.js';
import type { App } from '../http/route.js';

/** Reads JSON bodies before the caller is known, so it keeps them small. */
export function acceptSmallBodies(app: App, limit: number): void {
  app.addHook('preParsing', ({ raw }, _reply, _payload, done) => {
    continueBody(raw);
    done();
  });
  app.addContentTypeParser('application/json', ({ raw }, payload, done) => {
    const arrived = (bytes: number) => {
      if (bytes > limit) throw new ApiError('payload_too_large', undefined, { limit_bytes: limit });
    };
    arrived(Number(raw.headers['content-length'] ?? 0));
    readJson(payload, { arrived, byteLists: false }, done);
  });
}
