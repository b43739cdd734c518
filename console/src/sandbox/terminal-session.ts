import { FitAddon } from '@xterm/addon-fit';
import { Terminal } from '@xterm/xterm';
import '@xterm/xterm/css/xterm.css';
import { call } from '../lib/api';
import { BASE_PATH } from '../lib/base';
import { copyText } from '../lib/copy-text';
import { styleByScript } from '../lib/styles-by-script';

export interface TerminalState {
  kind: 'open' | 'closed';
  text: string;
}

interface TerminalOptions {
  sandboxId: string;
  command: string;
  signal: AbortSignal;
  changed: (state: TerminalState) => void;
  /** Moves the focus out of the terminal, which takes every other key. */
  leave: () => void;
}

/** The service takes at most 64 KiB in a message, and a pasted text may be longer. */
const MOST_BYTES = 32_768;

/** Opens a terminal in `place` until the signal aborts. Returns the function that moves the focus into it. */
export async function openTerminal(place: HTMLElement, options: TerminalOptions): Promise<() => void> {
  const { sandboxId, command, signal, changed, leave } = options;
  const restore = styleByScript(document);
  const terminal = new Terminal({
    cursorBlink: !matchMedia('(prefers-reduced-motion: reduce)').matches,
    fontFamily: getComputedStyle(document.documentElement).getPropertyValue('--mono'),
    fontSize: 14,
    // A row of the height of the font cuts its underscores off.
    lineHeight: 1.2,
    screenReaderMode: true,
    scrollback: 10_000,
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  place.replaceChildren();
  terminal.open(place);
  fit.fit();
  // A hidden terminal has no size, and keeps its columns until it is seen again.
  const resized = new ResizeObserver(() => {
    if (place.offsetParent !== null) fit.fit();
  });
  resized.observe(place);
  signal.addEventListener('abort', () => {
    resized.disconnect();
    terminal.dispose();
    restore();
  });

  const { rows, cols } = terminal;
  const { ticket, path } = await call('POST /v1/sandboxes/{sandbox_id}/terminal-tickets', {
    path: { sandbox_id: sandboxId },
    body: { cmd: command, rows, cols },
    signal,
  });
  const focus = () => terminal.focus();
  if (signal.aborted) return focus;
  const address = new URL(BASE_PATH + path, location.href);
  address.protocol = address.protocol.replace('http', 'ws');
  const socket = new WebSocket(address, ['sandkeep.terminal.v1', `ticket.${ticket}`]);
  socket.binaryType = 'arraybuffer';
  signal.addEventListener('abort', () => socket.close());
  let ending: string | undefined;
  socket.addEventListener('open', () => {
    changed({ kind: 'open', text: '● connected' });
    if (place.offsetParent !== null) focus();
  });
  socket.addEventListener('message', ({ data }) => {
    if (typeof data === 'string') ending = inWords(JSON.parse(data) as Ending);
    else terminal.write(new Uint8Array(data as ArrayBuffer));
  });
  socket.addEventListener('close', () => {
    if (signal.aborted) return;
    const lost =
      'The connection was lost. The service has ended the program of this terminal; the files of the sandbox stay.';
    changed({ kind: 'closed', text: ending ?? lost });
    terminal.options.disableStdin = true;
  });
  const copy = () => {
    const selection = terminal.getSelection();
    if (selection !== '') void copyText(selection, 'selection');
  };
  terminal.attachCustomKeyEventHandler((event) => {
    const isLeaving = event.shiftKey && event.key === 'Escape';
    const isCopying = event.shiftKey && event.ctrlKey && event.code === 'KeyC';
    if (!isLeaving && !isCopying) return true;
    event.preventDefault();
    if (event.type === 'keydown') (isLeaving ? leave : copy)();
    return false;
  });
  terminal.onData((text) => {
    const bytes = new TextEncoder().encode(text);
    if (socket.readyState !== WebSocket.OPEN) return;
    for (let at = 0; at < bytes.length; at += MOST_BYTES) socket.send(bytes.subarray(at, at + MOST_BYTES));
  });
  terminal.onResize(({ rows, cols }) => {
    if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ type: 'resize', rows, cols }));
  });
  return focus;
}

type Ending = { type: 'exited'; exit_code: number } | { type: 'failed'; error: unknown };

function inWords(ending: Ending): string {
  if (ending.type === 'exited') return `The program ended with exit code ${ending.exit_code}.`;
  const { error } = ending;
  return `The terminal ended: ${typeof error === 'string' ? error : JSON.stringify(error)}`;
}
