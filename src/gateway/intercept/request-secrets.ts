import type { Transform } from 'node:stream';
import { Echoes } from '../secrets/echoes.js';
import { LARGEST_BODY, Substitution, Violation } from '../secrets/substitute.js';
import type { Connection } from './connection.js';
import { codingsOf, decodingOf } from './content-coding.js';
import type { Refusal } from './refusal.js';

type Fields = readonly (readonly [string, string])[];

const PARTIAL = 206;
/** Work on a small body counts as a part of its request. */
const LEAST_CHARGED_MS = 0.2;

export interface AnswerBody {
  /** From the bytes of the server to those of the client. */
  steps: Transform[];
  /** The client gets it without its content coding. */
  isDecoded: boolean;
}

/** The secrets of a sandbox in one request, and in its answer. */
export class RequestSecrets {
  private readonly substitution: Substitution;
  private readonly echoes: Echoes;
  /** The time of work on bodies that is not charged yet. */
  private unpaid = 0;

  private constructor(
    private readonly connection: Connection,
    private readonly name: string,
    substitution: Substitution,
  ) {
    this.substitution = substitution;
    this.echoes = new Echoes(substitution.shared, substitution.credentials);
  }

  /** Undefined: nothing of the request and its answer has to be looked at. `name`: of the server. */
  static for(connection: Connection, name: string, isVerified: boolean): RequestSecrets | undefined {
    const { secrets } = connection;
    if (secrets.length === 0) return undefined;
    const isResolved = connection.isResolved(name);
    const substitution = new Substitution(secrets, { name, isVerified, isResolved });
    return substitution.isIdle ? undefined : new RequestSecrets(connection, name, substitution);
  }

  get rewritesBodies(): boolean {
    return this.substitution.rewritesBodies;
  }

  head(
    method: string,
    path: string,
    headers: Fields,
  ): { path: string; headers: [string, string][] } | Refusal {
    if (method === 'TRACE' && this.substitution.shared.length > 0) return noTrace(this.name);
    // A compressed answer could not be looked through.
    return this.substitute(method, path, this.echoes.isIdle ? headers : asksForPlain(headers));
  }

  trailers(fields: Fields): { headers: [string, string][] } | Refusal {
    return this.substitute('', '', fields);
  }

  private substitute(
    method: string,
    path: string,
    headers: Fields,
  ): { path: string; headers: [string, string][] } | Refusal {
    const head = this.timed(() => this.substitution.head({ method, path, headers }));
    // Nobody waits for it here: the next request or piece of the organization does.
    void this.rest()?.catch(() => undefined);
    if (head instanceof Violation) return this.refuse(head);
    this.note(head.used);
    return head.value;
  }

  /** A whole body. */
  body(body: Buffer, contentType?: string): Buffer | Refusal {
    const replaced = this.timed(() => this.substitution.body(body, contentType));
    if (replaced instanceof Violation) return this.refuse(replaced);
    this.note(replaced.used);
    return replaced.value;
  }

  /** Looks through a body in pieces that is not rewritten. */
  scanner(protocol: 'http/1.1' | 'h2'): (piece: Buffer) => Refusal | undefined {
    const scan = this.substitution.scanner({ everySecret: true });
    return (piece) => {
      const violation = this.timed(() => scan(piece));
      if (!violation) return undefined;
      const isLarge = protocol === 'http/1.1' && this.substitution.shared.includes(violation.secret);
      const reason = `a body of more than ${LARGEST_BODY / 1024 ** 2} MiB is not rewritten: send a smaller one`;
      return this.refuse(isLarge ? new Violation(violation.secret, reason) : violation);
    };
  }

  /** A value of a header of the answer. */
  echo(value: string): string {
    return this.echoes.isIdle ? value : this.timed(() => this.echoes.replace(value));
  }

  /** Undefined: the body of the answer stays as it is. A refusal: it cannot be read. */
  answerBody(
    status: number,
    contentType?: string,
    contentEncoding?: string,
  ): AnswerBody | Refusal | undefined {
    if (this.echoes.isIdle || !Echoes.reads(contentType)) return undefined;
    const codings = codingsOf(contentEncoding);
    // Parts of a text may each have a part of the value, which cannot be found.
    const isPart = status === PARTIAL;
    const meter = { timed: this.timed.bind(this), rest: this.rest.bind(this) };
    const echoes = this.echoes.transform(isPart ? 'refuse' : 'replace', meter);
    if (isPart || codings.length === 0) return { steps: [echoes], isDecoded: false };
    const decoding = decodingOf(codings);
    if (!decoding) return unreadableCoding(this.name, codings);
    return { steps: [...decoding, echoes], isDecoded: true };
  }

  /** To be awaited after work on a body. Undefined: the organization may go on. */
  rest(): Promise<void> | undefined {
    const millis = this.unpaid;
    this.unpaid = 0;
    return millis < LEAST_CHARGED_MS ? undefined : this.connection.work.charge(this.connection.orgId, millis);
  }

  private timed<T>(work: () => T): T {
    const start = performance.now();
    const result = work();
    this.unpaid += performance.now() - start;
    return result;
  }

  private note(used: readonly string[]): void {
    for (const secret of used) this.connection.to.flow.usedSecret(secret);
  }

  private refuse({ secret, reason }: Violation): Refusal {
    this.connection.denySecret(secret, this.name, reason);
    return {
      status: 403,
      code: 'secret_policy_denied',
      message: `the secret ${secret.name} was not sent to ${this.name}: ${reason}`,
      domain: this.name,
    };
  }
}

/** The request asked for none. The server chooses the names. */
function unreadableCoding(domain: string, codings: readonly string[]): Refusal {
  return {
    status: 502,
    code: 'upstream_failed',
    message: `${domain} sent an answer in the content coding ${codings.join(', ')}, in which no secret can be found: let the server send it as it is, or with gzip`,
    domain,
  };
}

/** The answer to it is the request, in a form of the server. */
function noTrace(domain: string): Refusal {
  return {
    status: 403,
    code: 'secret_policy_denied',
    message: 'TRACE would show the values of secrets: send another request',
    domain,
  };
}

function asksForPlain(headers: Fields): Fields {
  const others = headers.filter(([name]) => name.toLowerCase() !== 'accept-encoding');
  return [...others, ['accept-encoding', 'identity']];
}
