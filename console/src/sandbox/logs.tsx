import { addressOf } from '../lib/api';
import type { SandboxResponse } from '../lib/api-types';
import { useLog } from '../lib/use-log';
import { LogView } from '../parts/log-view';

export function Logs({ sandbox }: { sandbox: SandboxResponse }) {
  const log = useLog(addressOf('/v1/sandboxes/{sandbox_id}/logs', { sandbox_id: sandbox.id }, {}));
  return (
    <LogView
      log={log}
      file={`${sandbox.name}.log`}
      empty="The log has the output of the command in the specification (runtime.cmd)."
    />
  );
}
