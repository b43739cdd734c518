import { beginCommand } from '../../sandboxes/exec/command.js';
import { PacedOutput } from '../../sandboxes/exec/paced-output.js';
import type { InStep } from '../../sandboxes/exec/stream.js';
import { withFiles } from '../../sandboxes/files/session.js';
import { explainEnd } from '../../sandboxes/sessions/end-cause.js';
import type { Visit } from '../../sandboxes/sessions/entrance.js';
import type { StoredContext } from '../context/read.js';
import { copyStep } from './copy.js';
import { atLine, BuildError } from './failure.js';
import type { BuildLog } from './log.js';
import type { Step } from './plan.js';
import type { RunningSandbox } from './sandbox.js';

const WINDOW = 256 * 1024;
const NEW_DIRECTORY = 0o755;

interface StepEnvironment {
  context: Pick<StoredContext, 'read'>;
  log: BuildLog;
  signal: AbortSignal;
  inStep: InStep;
}

/** Throws BuildError with the line of the step. */
export async function executeStep(
  sandbox: Pick<RunningSandbox, 'visit'>,
  step: Exclude<Step, { type: 'copy-from' }>,
  { context, log, signal, inStep }: StepEnvironment,
): Promise<void> {
  let visit: Visit | undefined;
  try {
    visit = await sandbox.visit();
    if (step.type === 'run') await run(visit, step, log, inStep);
    else if (step.type === 'copy') await copyStep(visit, step, context, signal);
    else await withFiles(visit, ({ files }) => files.mkdir(step.path, NEW_DIRECTORY));
  } catch (error) {
    throw atLine(visit ? await explainEnd(visit, error) : error, step.line);
  }
}

/** Also a command that fails has its output in the log before the reason. */
async function ended<T>(outcome: Promise<T>, output: PacedOutput): Promise<T> {
  try {
    return await outcome;
  } finally {
    await output.taken();
  }
}

async function run(
  visit: Visit,
  step: Extract<Step, { type: 'run' }>,
  log: BuildLog,
  inStep: InStep,
): Promise<void> {
  const streams = { stdout: log.stream('stdout'), stderr: log.stream('stderr') };
  const { args, env, cwd, user } = step;
  const spec = { args, env, cwd, user, terminal: null, rlimits: [], credit: WINDOW };
  const output = new PacedOutput(
    inStep,
    (stream, data) => streams[stream].push(data),
    (bytes) => command.grant(bytes),
  );
  const { command, outcome } = await beginCommand(visit, spec, {
    output: (stream, data) => output.push(stream, data),
  });
  command.end();
  const { exitCode, oomKilled } = await ended(outcome, output);
  streams.stdout.end();
  streams.stderr.end();
  if (exitCode === 0) return;
  const reason =
    oomKilled === true ? ': the sandbox had no memory left, give it more by sandbox.resources' : '';
  throw new BuildError('step_failed', `the command ended with the exit code ${exitCode}${reason}`, step.line);
}
