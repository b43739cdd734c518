import { pino, type DestinationStream, type Logger } from 'pino';

export const LOG_LEVELS = ['debug', 'info', 'warn', 'error', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

/**
 * Logs JSON lines. Messages are constant. Only the fields of errors below are logged, and of requests no headers, body
 * or query.
 */
export function makeLog(level: LogLevel, destination: DestinationStream): Logger {
  return pino(
    { level, base: null, timestamp: pino.stdTimeFunctions.isoTime, serializers: { err: describe } },
    destination,
  );
}

/**
 * Writes the lines of one iteration of the event loop together, because the write is the most expensive part of a line.
 * A process that is killed loses only the lines of its last iteration, whose responses are lost too.
 */
export function batchedByTurn(destination: DestinationStream): DestinationStream {
  let lines = '';
  const write = () => {
    const text = lines;
    lines = '';
    if (text !== '') destination.write(text);
  };
  process.once('exit', write);
  return {
    write(line) {
      if (lines === '') setImmediate(write);
      lines += line;
    },
  };
}

/** Also gives each line to `copy`, which must neither throw nor log. */
export function withCopy(
  destination: DestinationStream,
  copy: ((line: string) => void) | undefined,
): DestinationStream {
  if (!copy) return destination;
  return {
    write(line) {
      destination.write(line);
      copy(line);
    },
  };
}

/** Leaves out `detail` and `where` of PostgreSQL errors, which contain values of rows, and redacts keys. */
function describe(error: unknown): unknown {
  if (!(error instanceof Error)) return { message: redact(String(error)) };
  const { code, constraint } = error as Error & { code?: unknown; constraint?: unknown };
  return {
    type: error.name,
    message: redact(error.message),
    ...(code === undefined ? {} : { code }),
    ...(constraint === undefined ? {} : { constraint }),
    stack: redact(error.stack ?? ''),
    ...(error.cause === undefined ? {} : { cause: describe(error.cause) }),
  };
}

function redact(text: string): string {
  return (
    text
      .replace(/(sk[a-z]_|msb_pat_)[0-9A-Za-z]{8,}/g, '$1[redacted]')
      // The name has no slash, and the password no "://": otherwise a long text of callers would be scanned again from
      // each "postgres".
      .replace(/(postgres(?:ql)?:\/\/[^:@\s/]+:)(?:(?!:\/\/)[^@\s])+@/g, '$1[redacted]@')
  );
}
