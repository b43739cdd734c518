/** The record that a supervisor keeps of its run. guest/supervise/record.h has its lines. */

export interface ProcessIdentity {
  pid: number;
  /** In ticks since the start of the machine: a later process with the number has another time. */
  startTicks: string;
}

/** Times in microseconds since 1970. */
export interface RunRecord {
  supervisor: ProcessIdentity;
  monitor: ProcessIdentity | undefined;
  /** The id of the start of the machine. */
  boot: string;
  startedAt: bigint | undefined;
  readyAt: bigint | undefined;
  /** Why the sandbox cannot start, in the words of its first program. */
  failed: string | undefined;
  command: { code: number; signal: number | null; outOfMemory: boolean | null; endedAt: bigint } | undefined;
  exit: { code: number; outOfMemory: boolean } | undefined;
  end: RunEnd | undefined;
  /** The bytes of its memory in a file. Undefined: no run can continue it. */
  savedBytes: number | undefined;
}

export interface RunEnd {
  endedAt: bigint;
  /** The status that wait(2) gave for the monitor. */
  status: number;
  cpuMicros: number;
  stop: 'none' | 'asked' | 'forced';
  shutdown: 'none' | 'guest' | 'host';
}

const SUPERVISOR = /^supervisor (\d{1,10}) (\d{1,20})$/m;
const MONITOR = /^monitor (\d{1,10}) (\d{1,20})$/m;
const BOOT = /^boot (.+)$/m;
const STARTED = /^started (\d{15,17})$/m;
const READY = /^ready (\d{15,17})$/m;
const FAILED = /^failed (.+)$/m;
const COMMAND = /^command (\d{1,3}) (\d{1,2}) ([012]) (\d{15,17})$/m;
const SAVED = /^saved (\d{1,15})$/m;
const EXIT = /^exit (\d{1,3}) ([012])$/m;
const ENDED =
  /^ended (\d{15,17})\nstatus (\d{1,6})\ncpu (\d{1,15})\nstop (none|asked|forced)\nshutdown (none|guest|host)$/m;

/** Undefined: another program wrote it. */
export function parseRecord(text: string): RunRecord | undefined {
  const supervisor = processIn(SUPERVISOR.exec(text));
  const boot = BOOT.exec(text)?.[1];
  if (supervisor === undefined || boot === undefined) return undefined;
  return {
    supervisor,
    monitor: processIn(MONITOR.exec(text)),
    boot,
    startedAt: microsIn(STARTED.exec(text)),
    readyAt: microsIn(READY.exec(text)),
    failed: FAILED.exec(text)?.[1],
    command: commandIn(COMMAND.exec(text)),
    exit: exitIn(EXIT.exec(text)),
    end: endIn(ENDED.exec(text)),
    savedBytes: savedIn(SAVED.exec(text)),
  };
}

function processIn(found: RegExpExecArray | null): ProcessIdentity | undefined {
  return found ? { pid: Number(found[1]), startTicks: found[2]! } : undefined;
}

function microsIn(found: RegExpExecArray | null): bigint | undefined {
  return found ? BigInt(found[1]!) : undefined;
}

function commandIn(found: RegExpExecArray | null): RunRecord['command'] {
  if (!found) return undefined;
  const [, code, signal, oom, micros] = found;
  return {
    code: Number(code),
    signal: Number(signal) || null,
    outOfMemory: oom === '2' ? null : oom === '1',
    endedAt: BigInt(micros!),
  };
}

function exitIn(found: RegExpExecArray | null): RunRecord['exit'] {
  return found ? { code: Number(found[1]), outOfMemory: found[2] === '1' } : undefined;
}

function savedIn(found: RegExpExecArray | null): number | undefined {
  return found ? Number(found[1]) : undefined;
}

function endIn(found: RegExpExecArray | null): RunEnd | undefined {
  if (!found) return undefined;
  const [, micros, status, cpu, stop, shutdown] = found;
  return {
    endedAt: BigInt(micros!),
    status: Number(status),
    cpuMicros: Number(cpu),
    stop: stop as RunEnd['stop'],
    shutdown: shutdown as RunEnd['shutdown'],
  };
}
