import { Type } from 'typebox';
import type { Api } from '../api.js';
import { eventsOf } from '../events.js';
import { sandboxInput, sandboxPath } from '../sandbox-path.js';
import { READS, textResult, tool } from '../tool.js';

const LINES = { default: 100, max: 2_000 };
/** The characters of all lines of a result. */
const MOST_CHARS = 128 * 1024;
/** The kept lines of a running sandbox are sent without a pause; new ones follow when they are written. */
const QUIET_MS = 1_000;
/** A sandbox that writes all the time has no pause. */
const LONGEST_MS = 10_000;

const readLogs = tool({
  name: 'read_logs',
  title: 'Read the log of a sandbox',
  description:
    'Returns the last lines that the main command of a sandbox wrote. The output of run_command is not in it.',
  scopes: ['sandboxes:read'],
  annotations: READS,
  input: {
    ...sandboxInput,
    lines: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: LINES.max,
        default: LINES.default,
        description: `The most lines of the result. Default: ${LINES.default}.`,
      }),
    ),
  },
  async call({ sandbox, lines = LINES.default }, { api }) {
    const { text, isOver } = await tailOf(api, sandbox, lines);
    if (text !== '') return textResult(text);
    return textResult(isOver ? '(the log is empty)' : '(the log is empty so far)');
  },
});

interface Line {
  source: string;
  ts: string;
  text: string;
}

/** The last lines. `isOver`: the run has ended, so that none follow. */
export async function tailOf(
  api: Api,
  sandbox: string,
  most: number,
): Promise<{ text: string; isOver: boolean }> {
  const answer = await api.send({
    method: 'GET',
    path: `${sandboxPath(sandbox)}/logs`,
    query: { mask_secrets: 'true' },
  });
  const lines: string[] = [];
  let chars = 0;
  let isOver = false;
  const end = performance.now() + LONGEST_MS;
  let isQuiet = false;
  const stop = () => {
    isQuiet = true;
    answer.destroy();
  };
  const quiet = setTimeout(stop, QUIET_MS);
  try {
    for await (const { name, data } of eventsOf(answer)) {
      if (name === 'end') isOver = true;
      if (name !== 'log') continue;
      quiet.refresh();
      const { text } = JSON.parse(data) as Line;
      lines.push(text);
      chars += text.length;
      while (lines.length > 1 && (lines.length > most || chars > MOST_CHARS)) chars -= lines.shift()!.length;
      if (performance.now() > end) break;
    }
  } catch (error) {
    if (!isQuiet) throw error;
  } finally {
    clearTimeout(quiet);
  }
  return { text: lines.join(''), isOver };
}

export const LOG_TOOLS = [readLogs];
