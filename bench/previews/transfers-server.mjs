// A server in a sandbox: /bytes/N answers so many bytes, /upload counts those of its body, /events sends an event each
// second, and a WebSocket gets its short messages back. Plain JavaScript, because a Node there runs its text.
import { createHash } from 'node:crypto';
import { createServer } from 'node:http';

const PIECE = Buffer.alloc(262_144, 'b');
const WEBSOCKET = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';

createServer((request, response) => {
  if (request.url === '/upload') {
    let bytes = 0;
    request.on('data', (chunk) => (bytes += chunk.length)).on('end', () => response.end(String(bytes)));
  } else if (request.url === '/events') {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const timer = setInterval(() => response.write('data: tick\n\n'), 1_000);
    response.once('close', () => clearInterval(timer));
  } else {
    let left = Number(/^\/bytes\/(\d+)$/.exec(request.url)?.[1] ?? 1);
    response.writeHead(200, { 'content-length': left });
    const send = () => {
      while (left > 0) {
        const piece = PIECE.subarray(0, left);
        left -= piece.length;
        if (left === 0) return response.end(piece);
        if (!response.write(piece)) return response.once('drain', send);
      }
    };
    send();
  }
})
  .on('upgrade', (request, socket) => {
    const accept = createHash('sha1')
      .update(request.headers['sec-websocket-key'] + WEBSOCKET)
      .digest('base64');
    const lines = ['HTTP/1.1 101 Switching Protocols', 'Upgrade: websocket', 'Connection: Upgrade'];
    socket.write([...lines, `Sec-WebSocket-Accept: ${accept}`, '', ''].join('\r\n'));
    socket.on('error', () => socket.destroy());
    // A short masked message.
    socket.on('data', (frame) => {
      const [mask, text] = [frame.subarray(2, 6), frame.subarray(6)];
      const plain = Buffer.from(text.map((byte, at) => byte ^ mask[at % 4]));
      socket.write(Buffer.concat([Buffer.from([0x81, plain.length]), plain]));
    });
  })
  .listen(8_000, '127.0.0.1');
