// Serves repositories by git's own program, which web servers run as a CGI.
import { spawn } from 'node:child_process';
import { createServer } from 'node:http';

const [folder, port] = process.argv.slice(2);
createServer((request, response) => {
  const { pathname, searchParams } = new URL(request.url, 'http://localhost');
  const program = spawn('git', ['http-backend'], {
    env: {
      ...process.env,
      GIT_PROJECT_ROOT: folder,
      GIT_HTTP_EXPORT_ALL: '1',
      PATH_INFO: pathname,
      QUERY_STRING: searchParams.toString(),
      REQUEST_METHOD: request.method,
      CONTENT_TYPE: request.headers['content-type'] ?? '',
      HTTP_CONTENT_ENCODING: request.headers['content-encoding'] ?? '',
      GIT_PROTOCOL: request.headers['git-protocol'] ?? '',
      // Allows pushes.
      REMOTE_USER: 'test',
    },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  request.pipe(program.stdin);
  let head = Buffer.alloc(0);
  const read = (chunk) => {
    head = Buffer.concat([head, chunk]);
    const end = head.indexOf('\r\n\r\n');
    if (end === -1) return;
    program.stdout.off('data', read).pause();
    const headers = head.toString('latin1', 0, end).split('\r\n');
    const fields = headers.map((line) => line.split(/: (.*)/s, 2));
    response.statusCode = Number(fields.find(([name]) => name === 'Status')?.[1].slice(0, 3) ?? 200);
    for (const [name, value] of fields) if (name !== 'Status') response.setHeader(name, value);
    response.write(head.subarray(end + 4));
    program.stdout.pipe(response);
  };
  program.stdout.on('data', read);
}).listen(Number(port), '127.0.0.1');
