/** A sandbox in an answer of the API, as far as a model needs it. */
export interface Sandbox {
  id: string;
  name: string;
  status: string;
  ephemeral: boolean;
  created_at: string;
  started_at?: string | null;
  stopped_at?: string | null;
  status_reason?: string | null;
  stop_reason?: string | null;
  stop_message?: string | null;
  last_failure_message?: string | null;
  spec?: {
    image?: string | null;
    resources?: { vcpus?: number; memory_mib?: number };
    labels?: Record<string, string>;
    network?: { enabled?: boolean };
    lifecycle?: { max_duration_secs?: number | null };
  } | null;
}

/** Few fields: a model reads every one of them, and the context of a model is short. */
export function presentSandbox(sandbox: Sandbox): Record<string, unknown> {
  const { spec, id, name, status, ephemeral } = sandbox;
  const facts = {
    status_reason: sandbox.status_reason,
    stop_reason: sandbox.stop_reason,
    stop_message: sandbox.stop_message,
    last_failure_message: sandbox.last_failure_message,
    created_at: sandbox.created_at,
    started_at: sandbox.started_at,
    stopped_at: sandbox.stopped_at,
    image: spec?.image,
    vcpus: spec?.resources?.vcpus,
    memory_mib: spec?.resources?.memory_mib,
    network: spec?.network?.enabled,
    labels: spec?.labels,
    max_duration_secs: spec?.lifecycle?.max_duration_secs,
  };
  const known = Object.entries(facts).filter(([, value]) => value != null);
  return { id, name, status, ephemeral, ...Object.fromEntries(known) };
}
