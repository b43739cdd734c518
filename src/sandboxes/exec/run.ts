import type { Buffer } from 'node:buffer';
import { GrowingBuffer } from '../../lib/growing-buffer.js';
import type { SecretMask } from '../../secrets/mask.js';
import type { Visit } from '../sessions/entrance.js';
import { beginCommand } from './command.js';
import { outputText } from './output-text.js';
import { PacedOutput } from './paced-output.js';
import { commandOf, inputOf } from './read-command.js';
import { DEFAULT_TIMEOUT_SECS, STORED_OUTPUT_BYTES, type ExecRequest, type ExecResult } from './schema.js';
import { explainEnd } from '../sessions/end-cause.js';
import type { InStep } from './stream.js';

const WINDOW = 256 * 1024;

/** Runs a command to its end. Output beyond the limit is read and dropped, so that the command does not wait. */
export async function run(
  visit: Visit,
  request: ExecRequest,
  inStep: InStep,
  mask: SecretMask | undefined,
): Promise<ExecResult> {
  const [spec, input] = [commandOf(request, WINDOW), inputOf(request)];
  const kept = { stdout: new GrowingBuffer(), stderr: new GrowingBuffer() };
  let room = request.max_output_bytes ?? STORED_OUTPUT_BYTES;
  let truncated = false;
  const masks = mask && { stdout: mask.stream(), stderr: mask.stream() };
  const keep = (stream: 'stdout' | 'stderr', data: Buffer) => {
    kept[stream].push(data.subarray(0, room));
    if (data.length > room) truncated = true;
    room = Math.max(room - data.length, 0);
  };
  const output = new PacedOutput(
    inStep,
    (stream, data) => keep(stream, masks ? masks[stream].push(data) : data),
    (bytes) => command.grant(bytes),
  );
  const timeoutMs = (request.timeout_secs ?? DEFAULT_TIMEOUT_SECS) * 1000;
  const { command, outcome, write } = await beginCommand(
    visit,
    spec,
    { output: (stream, data) => output.push(stream, data), isBehind: () => output.isBehind },
    timeoutMs,
  );
  void write(input).then(() => command.end());
  const encoding = request.output_encoding === 'base64' ? 'base64' : 'utf8';
  const begun = performance.now();
  const endOutput = async () => {
    await output.taken();
    for (const stream of ['stdout', 'stderr'] as const) if (masks) keep(stream, masks[stream].end());
  };
  const { exitCode, oomKilled, timedOut, durationMs } = await outcome.catch(async (error: unknown) => {
    const duration = Math.round(performance.now() - begun);
    throw await explainEnd(visit, error, async () => {
      await endOutput();
      const first = await firstOutput(kept, encoding, inStep);
      return { ...first.texts, truncated: truncated || first.isCut, duration_ms: duration };
    });
  });
  await endOutput();
  return {
    exit_code: exitCode,
    stdout: await outputText(kept.stdout.bytes, encoding, inStep),
    stderr: await outputText(kept.stderr.bytes, encoding, inStep),
    truncated,
    timed_out: timedOut,
    oom_killed: oomKilled,
    duration_ms: durationMs,
  };
}

/** An error has as much output as an idempotency key stores. */
async function firstOutput(
  kept: Record<'stdout' | 'stderr', GrowingBuffer>,
  encoding: 'base64' | 'utf8',
  inStep: InStep,
): Promise<{ texts: { stdout: string; stderr: string }; isCut: boolean }> {
  const [stdout, stderr] = [kept.stdout.bytes, kept.stderr.bytes];
  const most = STORED_OUTPUT_BYTES / 2;
  const isCut = stdout.length + stderr.length > STORED_OUTPUT_BYTES;
  const some = (bytes: Buffer) => (isCut ? bytes.subarray(0, most) : bytes);
  const texts = {
    stdout: await outputText(some(stdout), encoding, inStep),
    stderr: await outputText(some(stderr), encoding, inStep),
  };
  return { texts, isCut };
}
