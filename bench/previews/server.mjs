// A web server in a sandbox: /small answers 2 KiB, /bytes/N so many bytes. Plain JavaScript, because a Node there runs
// its text.
import { createServer } from 'node:http';

const SMALL = Buffer.alloc(2_048, 'a');
const PIECE = Buffer.alloc(262_144, 'b');

createServer({ keepAliveTimeout: 60_000 }, (request, response) => {
  const [, bytes] = /^\/bytes\/(\d+)$/.exec(request.url) ?? [];
  const length = bytes === undefined ? SMALL.length : Number(bytes);
  response.writeHead(200, { 'content-type': 'text/plain', 'content-length': length });
  if (bytes === undefined) return response.end(SMALL);
  let left = length;
  const send = () => {
    while (left > 0) {
      const piece = left < PIECE.length ? PIECE.subarray(0, left) : PIECE;
      left -= piece.length;
      if (left === 0) return response.end(piece);
      if (!response.write(piece)) return response.once('drain', send);
    }
  };
  send();
}).listen(8000, '0.0.0.0');
