// Serves the folder that the first argument names, as the simplest web servers do.
import { createReadStream, statSync } from 'node:fs';
import { createServer } from 'node:http';
import { join, normalize } from 'node:path';

const [folder, port] = process.argv.slice(2);
createServer((request, response) => {
  const file = join(folder, normalize(new URL(request.url, 'http://localhost').pathname));
  const found = statSync(file, { throwIfNoEntry: false });
  if (!found?.isFile()) return response.writeHead(404).end();
  response.writeHead(200, { 'content-length': found.size });
  return createReadStream(file).pipe(response);
}).listen(Number(port), '127.0.0.1');
