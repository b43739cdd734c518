import { pino, type DestinationStream, type Logger } from 'pino';

export const LOG_LEVELS = ['debug', 'info', 'warn', 'error', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

/**
 * JSON lines. The messages are constant and the data is in fields. Secrets are kept out by what is passed on: of an
 * error only the fields below, of a request never headers, body or query.
 */
export function makeLog(level: LogLevel, destination: DestinationStream): Logger {
  return pino(
    { level, base: null, timestamp: pino.stdTimeFunctions.isoTime, serializers: { err: describe } },
    destination,
  );
}

/**
 * Writes the lines of one turn of the event loop together: a write takes longer than all else a line does, and under load a turn
 * has many. A line is out before anything later is begun, and when the process ends; of one that is killed the lines of the
 * turn it was in are lost, as are its answers.
 */
export function inTurns(destination: DestinationStream): DestinationStream {
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

/** PostgreSQL adds the values of rows in `detail` and `where`: they stay out. So do keys, wherever they turn up. */
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
  return text
    .replace(/skp_[0-9A-Za-z]{8,}/g, 'skp_[redacted]')
    .replace(/(postgres(?:ql)?:\/\/[^:@\s]+:)[^@\s]+@/g, '$1[redacted]@');
}
