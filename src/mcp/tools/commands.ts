import type { CallToolResult } from '@modelcontextprotocol/server';
import { Type } from 'typebox';
import { Words } from '../../http/schema.js';
import { MAX_TIMEOUT_SECS } from '../../sandboxes/exec/schema.js';
import { eventsOf } from '../events.js';
import { KeptOutput } from '../kept-output.js';
import { Refusal, Unreachable } from '../refusal.js';
import { sandboxInput, sandboxPath } from '../sandbox-path.js';
import { failure, textResult, tool, type ToolContext } from '../tool.js';

/** Clients of the protocol usually wait a minute for a result. */
const DEFAULT_TIMEOUT_SECS = 50;
/** The characters of each stream that a result has. */
const OUTPUT_CHARS = { default: 32 * 1024, max: 256 * 1024 };
const LONGEST_TEXT = 512 * 1024;

const common = {
  ...sandboxInput,
  cwd: Type.Optional(Type.String({ description: 'The working directory. Default: that of the sandbox.' })),
  env: Type.Optional(
    Type.Record(Type.String(), Type.String(), { description: 'Environment variables for this call.' }),
  ),
  timeout_secs: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: MAX_TIMEOUT_SECS,
      default: DEFAULT_TIMEOUT_SECS,
      description: `The seconds after which the command is killed, at most ${MAX_TIMEOUT_SECS}. Default: ${DEFAULT_TIMEOUT_SECS}. For longer work start it in the background and write its output to a file.`,
    }),
  ),
  max_output_chars: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: OUTPUT_CHARS.max,
      default: OUTPUT_CHARS.default,
      description: `The most characters of each output stream in the result, at most ${OUTPUT_CHARS.max}. Of a longer one the result has the beginning and the end. Default: ${OUTPUT_CHARS.default}.`,
    }),
  ),
};

const annotations = { readOnlyHint: false, destructiveHint: true, idempotentHint: false };

const runCommand = tool({
  name: 'run_command',
  title: 'Run a command in a sandbox',
  description:
    'Runs a command line in a running sandbox by `sh -c`, and returns its exit code and output. Nothing outside of the sandbox can be reached. Each call begins a new shell: variables and the working directory are not kept, and files are.',
  scopes: ['sandboxes:exec'],
  annotations,
  input: {
    command: Type.String({
      minLength: 1,
      maxLength: LONGEST_TEXT,
      description: 'The command line, such as `ls -l | head`.',
    }),
    stdin: Type.Optional(
      Type.String({ maxLength: LONGEST_TEXT, description: 'The input of the command. Default: none.' }),
    ),
    ...common,
  },
  call: (input, context) =>
    run(
      input,
      { args: ['-c', input.command], ...(input.stdin === undefined ? {} : { stdin: input.stdin }) },
      context,
    ),
});

/** The exit code of a shell that does not find a program. */
const NOT_FOUND = 127;

/** The command that reads a program from its standard input. */
const INTERPRETERS = {
  python: 'exec python3 -',
  javascript: 'exec node -',
  bash: 'exec bash -s',
  sh: 'exec sh -s',
};
type Language = keyof typeof INTERPRETERS;
const LANGUAGES = Object.keys(INTERPRETERS) as Language[];

const runCode = tool({
  name: 'run_code',
  title: 'Run code in a sandbox',
  description:
    'Runs a whole program in a running sandbox and returns its exit code and output. The image must have the interpreter: `python3`, `node`, `bash` or `sh`. Print the values that you want to see. Each call begins a new process: only files are kept.',
  scopes: ['sandboxes:exec'],
  annotations,
  input: {
    language: Words(LANGUAGES, { description: 'The language of the program.' }),
    code: Type.String({ minLength: 1, maxLength: LONGEST_TEXT, description: 'The text of the program.' }),
    ...common,
  },
  call: (input, context) =>
    run(input, { args: ['-c', INTERPRETERS[input.language]], stdin: input.code }, context),
});

interface Input {
  sandbox: string;
  cwd?: string;
  env?: Record<string, string>;
  timeout_secs?: number;
  max_output_chars?: number;
}

interface Exited {
  exit_code: number;
  timed_out: boolean;
  oom_killed: boolean | null;
  duration_ms: number;
}

/** The command waits while the service is behind with its output, and ends when the caller leaves. */
async function run(
  { sandbox, cwd, env = {}, timeout_secs: timeoutSecs = DEFAULT_TIMEOUT_SECS, max_output_chars: most }: Input,
  program: { args: string[]; stdin?: string },
  { api, progress }: ToolContext,
): Promise<CallToolResult> {
  const answer = await api.send({
    method: 'POST',
    path: `${sandboxPath(sandbox)}/exec`,
    headers: { accept: 'text/event-stream' },
    body: {
      cmd: 'sh',
      ...program,
      env,
      ...(cwd === undefined ? {} : { cwd }),
      timeout_secs: timeoutSecs,
      mask_secrets: true,
    },
  });
  const kept = {
    stdout: new KeptOutput(most ?? OUTPUT_CHARS.default),
    stderr: new KeptOutput(most ?? OUTPUT_CHARS.default),
  };
  for await (const { name, data } of eventsOf(answer)) {
    if (name === 'stdout' || name === 'stderr') {
      const { text } = JSON.parse(data) as { text: string };
      kept[name].push(text);
      progress(text);
    } else if (name === 'exited') {
      return textResult(describe(JSON.parse(data) as Exited, kept, timeoutSecs));
    } else if (name === 'failed') {
      const { error } = JSON.parse(data) as { error: { code: string; message: string; details: unknown } };
      const { advice } = new Refusal(error.code, error.message, {
        status: 409,
        details: error.details,
        retryAfter: undefined,
      });
      return failure([advice, ...outputs(kept)].join('\n'));
    }
  }
  throw new Unreachable('the answer ended before the command');
}

type Kept = Record<'stdout' | 'stderr', KeptOutput>;

function describe(
  { exit_code: code, timed_out: timedOut, oom_killed: oomKilled, duration_ms: millis }: Exited,
  kept: Kept,
  timeoutSecs: number,
): string {
  const notes = [
    ...(timedOut
      ? [`It was killed after ${timeoutSecs} s: raise timeout_secs, or start it in the background.`]
      : []),
    ...(code === NOT_FOUND
      ? ['A program was not found: create a sandbox from an image that has it, or install it.']
      : []),
    ...(oomKilled === true
      ? ['It was killed because the sandbox had no memory left: create a sandbox with more memory_mib.']
      : []),
  ];
  return [`exit code ${code} after ${millis} ms`, ...notes, ...outputs(kept)].join('\n');
}

function outputs(kept: Kept): string[] {
  const shown = (['stdout', 'stderr'] as const).flatMap((name) => {
    const text = String(kept[name]);
    return text === '' ? [] : [`--- ${name} ---`, text.replace(/\n$/, '')];
  });
  const isCut = kept.stdout.isCut || kept.stderr.isCut;
  const hint = 'For all output write it to a file, and read parts of that with run_command.';
  return shown.length === 0 ? ['(no output)'] : [...shown, ...(isCut ? [hint] : [])];
}

export const COMMAND_TOOLS = [runCommand, runCode];
