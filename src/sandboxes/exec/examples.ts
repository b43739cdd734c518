import { SANDBOX_ID } from '../../http/example-ids.js';
import type { Examples } from '../../http/examples.js';

const command = {
  body: { cmd: 'sh', args: ['-c', 'echo "$GREETING"; exit 3'], env: { GREETING: 'hello' }, timeout_secs: 10 },
  answer: {
    exit_code: 3,
    stdout: 'hello\n',
    stderr: '',
    truncated: false,
    timed_out: false,
    oom_killed: false,
    duration_ms: 4,
  },
};

export const execExamples: Examples = {
  exec_sandbox: { parameters: { sandbox_id: SANDBOX_ID }, ...command },
  exec_sandbox_by_name: { parameters: { name: 'web' }, ...command },
};
