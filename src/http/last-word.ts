import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

const LOOK_MS = 500;
/** Without a byte for this many looks, the client has stopped to send. */
const IDLE_LOOKS = 4;
const MOST_LOOKS = 60;

/**
 * Gives a client time to read the last answer of its connection, then calls `end`. The end of a connection with unread
 * bytes resets it, and a client that still sends loses the answer. So the time is two seconds after the last byte, and
 * 30 seconds at most. It is counted in looks: between two of them the event loop reads, however late a busy process is.
 * Returns a function that cancels the end.
 */
export function afterLastWord(socket: Duplex | Socket, end: () => void): () => void {
  // A stream that is no socket counts no bytes.
  const bytesRead = () => ('bytesRead' in socket ? socket.bytesRead : 0);
  let seen = bytesRead();
  let idle = 0;
  let timer = setTimeout(look, LOOK_MS).unref();
  let looks = 0;

  function look(): void {
    const bytes = bytesRead();
    idle = bytes === seen ? idle + 1 : 0;
    seen = bytes;
    looks += 1;
    if (idle >= IDLE_LOOKS || looks >= MOST_LOOKS) end();
    else timer = setTimeout(look, LOOK_MS).unref();
  }

  return () => clearTimeout(timer);
}
