import pg from 'pg';
import { ExplainedError } from '../../lib/explained-error.js';

export interface Host {
  host: string;
  port: number;
}

export interface ServerList {
  /** The URL with the first host alone, and without the parameters that choose a host. */
  url: string;
  /** In the order of the URL. */
  hosts: readonly Host[];
}

const DEFAULT_PORT = 5432;
/** The driver accepts forms that the URL standard does not, such as postgres://user@/db?host=/socket. */
const SHAPE = /^(postgres(?:ql)?:\/\/)([^/?#]*)([^?#]*)(?:\?([^#]*))?$/;
/** Every connection writes, or reads the latest state. */
const ACCEPTED_ATTRS = new Set(['read-write', 'primary']);

/**
 * Reads a URL with one host or several, as libpq does: in the place of the host, or as lists in the parameters `host`
 * and `port`. Throws ExplainedError. The URL holds a password, so no message and no `cause` repeats it.
 */
export function parseHosts(url: string): ServerList {
  const [, scheme, authority, path, query = ''] = SHAPE.exec(url) ?? [];
  if (authority === undefined) throw unreadable();
  const parameters = new URLSearchParams(query);
  checkTarget(parameters.get('target_session_attrs'));
  const account = authority.slice(0, authority.lastIndexOf('@') + 1);
  const list = parameters.get('host') ?? authority.slice(account.length);
  if (!list.includes(',')) {
    if (!parameters.has('target_session_attrs')) return { url, hosts: [hostOf(url)] };
    parameters.delete('target_session_attrs');
    const single = `${scheme}${authority}${path}${withQuery(parameters)}`;
    return { url: single, hosts: [hostOf(single)] };
  }
  const ports = parameters.get('port')?.split(',');
  const parts = list.split(',');
  if (ports && ports.length !== 1 && ports.length !== parts.length) {
    throw new ExplainedError(
      `the database URL names ${parts.length} hosts and ${ports.length} ports: name one port for all hosts, or one for each`,
    );
  }
  for (const name of ['host', 'port', 'target_session_attrs', 'load_balance_hosts']) parameters.delete(name);
  const urls = parts.map((part, index) => {
    const port = ports?.[index] ?? ports?.[0];
    // A directory of sockets is a parameter for the driver.
    if (!part.startsWith('/')) {
      const place = port === undefined || /:\d+$/.test(part) ? part : `${part}:${port}`;
      return `${scheme}${account}${place}${path}${withQuery(parameters)}`;
    }
    const own = new URLSearchParams(parameters);
    own.set('host', part);
    if (port !== undefined) own.set('port', port);
    return `${scheme}${account}${path}${withQuery(own)}`;
  });
  return { url: urls[0]!, hosts: urls.map(hostOf) };
}

export function describeHost({ host, port }: Host): string {
  return host.startsWith('/') ? `${host}:${port}` : `${host.includes(':') ? `[${host}]` : host}:${port}`;
}

function withQuery(parameters: URLSearchParams): string {
  const text = parameters.toString();
  return text === '' ? '' : `?${text}`;
}

function hostOf(url: string): Host {
  try {
    const { host, port } = new pg.Client({ connectionString: url });
    if (!Number.isInteger(port)) throw unreadable();
    return { host, port: port || DEFAULT_PORT };
  } catch {
    throw unreadable();
  }
}

function checkTarget(attrs: string | null): void {
  if (attrs === null || ACCEPTED_ATTRS.has(attrs)) return;
  throw new ExplainedError(
    `the database URL has "target_session_attrs=${attrs}": every connection of Sandkeep needs the primary; write read-write, or leave it out`,
  );
}

function unreadable(): ExplainedError {
  return new ExplainedError(
    'the database URL cannot be read: it must be like postgres://user:password@host:5432/database, or name several servers of a cluster: postgres://user:password@one:5432,two:5432/database',
  );
}
