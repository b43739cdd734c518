/** Writes src/api.d.ts, the types of openapi.json. */
import { readFileSync, writeFileSync } from 'node:fs';
import openapiTypescript, { astToString } from 'openapi-typescript';

const api = JSON.parse(readFileSync(new URL('../../openapi.json', import.meta.url), 'utf8'));
for (const operation of Object.values(api.paths).flatMap((methods) => Object.values(methods))) {
  for (const { content } of Object.values(operation.responses)) {
    // The client asks for JSON. With another form beside it, the type of an answer would be a choice of both.
    if (content?.['application/json'] === undefined) continue;
    for (const type of Object.keys(content)) if (type !== 'application/json') delete content[type];
  }
}
// A field with a default may be left out of a request.
const types = await openapiTypescript(api, { defaultNonNullable: false });
writeFileSync(new URL('src/api.d.ts', import.meta.url), astToString(types));
