import type { Notification, ProgressToken } from '@modelcontextprotocol/server';

/** A client that shows progress draws it a few times a second. */
const EVERY_MS = 250;
/** A note has the newest characters: the result has the others. */
const LONGEST = 4_096;
/** Clients that extend their time-out with each note, and proxies, see a call that prints nothing. */
const SILENT_MS = 10_000;

/** Progress notifications of one call: the texts since the previous note, joined. */
export class ProgressNotes {
  private text = '';
  private count = 0;
  private timer: NodeJS.Timeout | undefined;
  private readonly silence: NodeJS.Timeout | undefined;
  private readonly begun = performance.now();

  /** `token`: undefined if the client asked for no notes. `isBehind`: whether it has notes to read still. */
  constructor(
    private readonly token: ProgressToken | undefined,
    private readonly isBehind: () => boolean,
    private readonly notify: (notification: Notification) => Promise<void>,
  ) {
    if (token === undefined) return;
    this.silence = setInterval(() => {
      const secs = Math.round((performance.now() - this.begun) / 1_000);
      this.send(`still at work after ${secs} s`);
    }, SILENT_MS);
  }

  readonly add = (text: string): void => {
    if (this.token === undefined) return;
    this.text = (this.text + text).slice(-LONGEST);
    this.silence?.refresh();
    this.timer ??= setTimeout(() => this.flush(), EVERY_MS);
  };

  /** The result has the text that is left. A client may drop a note that arrives together with a result. */
  end(): void {
    clearInterval(this.silence);
    clearTimeout(this.timer);
  }

  private flush(): void {
    const { text } = this;
    this.timer = undefined;
    this.text = '';
    this.send(text);
  }

  private send(message: string): void {
    if (this.token === undefined || this.isBehind()) return;
    this.count += 1;
    const params = { progressToken: this.token, progress: this.count, message };
    // A client that has left gets no notes.
    void this.notify({ method: 'notifications/progress', params }).catch(() => undefined);
  }
}
