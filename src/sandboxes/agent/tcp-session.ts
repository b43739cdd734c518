import { Serial } from '../../lib/serial.js';
import type { Connection } from '../../guest/guest.js';
import { HostConnection } from '../../guest/host-connection.js';
import type { SessionRecord } from '../sessions/recorder.js';
import type { Envelope } from './envelope.js';
import { readBytes, readInteger, readText } from './payload.js';
import { refusalOf, type Link, type Session } from './session.js';

/** A TCP connection that a client opens from within the sandbox. */
export class TcpSession implements Session {
  /** Undefined when the connection was not opened. */
  private readonly opened: Promise<Connection | undefined>;
  private record: SessionRecord | undefined;
  private readonly input = new Serial();
  private isOver = false;
  private abandonedFor = '';

  constructor(
    private readonly link: Link,
    private readonly id: number,
    { payload }: Envelope,
  ) {
    this.opened = this.open(readText(payload, 'host'), readInteger(payload, 'port', 1, 65_535));
  }

  receive(type: string, { payload }: Envelope): void {
    if (type === 'core.tcp.data') {
      const data = readBytes(payload, 'data');
      const release = this.link.hold(data.length);
      this.input.run(async () => {
        try {
          this.record?.received(data.length);
          await (await this.opened)?.write(data);
        } finally {
          release();
        }
      });
    } else if (type === 'core.tcp.eof') {
      const release = this.link.hold(0);
      this.input.run(async () => (await this.opened)?.end());
      this.input.run(() => Promise.resolve(release()));
    } else if (type === 'core.tcp.close') {
      const release = this.link.hold(0);
      void this.opened.then((connection) => connection?.close()).finally(release);
    }
  }

  abandon(reason: string): void {
    if (this.isOver) return;
    this.isOver = true;
    this.abandonedFor = reason;
    void this.opened.then((connection) => connection?.close());
    this.record?.end({ exitCode: null, reason });
  }

  private async open(host: string, port: number): Promise<Connection | undefined> {
    try {
      const record = await this.link.recorder.open({ kind: 'tcp', user: null, args: [`${host}:${port}`] });
      this.record = record;
      record.ended.addEventListener('abort', () => this.endAlone(), { once: true });
      if (this.isOver) {
        record.end({ exitCode: null, reason: this.abandonedFor });
        return undefined;
      }
      const connection = new HostConnection(this.link.guest, host, port, {
        connected: () => this.link.send(this.id, 'core.tcp.connected', {}),
        data: (data) => {
          record.sent(data.length);
          this.link.send(this.id, 'core.tcp.data', { data }, () => connection.grant(data.length));
        },
        ended: () => this.link.send(this.id, 'core.tcp.eof', {}),
        closed: (failure) => this.finish(failure),
      });
      return connection;
    } catch (error) {
      this.finish(refusalOf(error, this.link.log));
      return undefined;
    }
  }

  private endAlone(): void {
    void this.opened.then((connection) => connection?.close());
    this.finish('another caller has ended the connection', 'session_ended');
  }

  private finish(failure: string | null, reason = failure === null ? 'closed' : 'failed'): void {
    if (this.isOver) return;
    this.isOver = true;
    this.record?.end({ exitCode: null, reason });
    if (failure === null) this.link.finish(this.id, 'core.tcp.closed', {});
    else this.link.finish(this.id, 'core.tcp.failed', { error: failure });
  }
}
