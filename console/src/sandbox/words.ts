import type { EventResponse, SandboxCommand } from '../lib/api-types';
import { factsOf } from './history';

const WORDS: Record<string, string> = {
  sandbox_created: 'Created',
  sandbox_start_requested: 'Start requested',
  sandbox_start_queued: 'Start waits in a queue',
  sandbox_start_waiting: 'Start waits for a worker with room',
  sandbox_image_moved: 'The tag of its image leads to another image',
  sandbox_started: 'Started',
  sandbox_command_ended: 'Command ended',
  sandbox_stop_requested: 'Stop requested',
  sandbox_pause_requested: 'Pause requested',
  sandbox_paused: 'Paused',
  sandbox_pause_failed: 'Pause failed',
  sandbox_memory_discarded: 'Memory given up',
  sandbox_stopped: 'Stopped',
  sandbox_failed: 'Failed',
  sandbox_renamed: 'Renamed',
  sandbox_relabelled: 'Labels changed',
  sandbox_secrets_changed: 'Secrets changed',
  sandbox_destroyed: 'Deleted',
  sandbox_removed: 'Removed after its end',
  sandbox_run_closed: 'Run ended after the deletion',
  sandbox_session_opened: 'Session opened',
  sandbox_session_end_requested: 'End of a session requested',
  sandbox_session_ended: 'Session ended',
  network_destination_used: 'Network used',
  network_destination_denied: 'Network refused',
  network_secret_withheld: 'Secret withheld',
  network_record_cut: 'Destinations left out of the record',
};

/** Reasons that the title already tells. */
const PLAIN = new Set(['', 'requested', 'run_started']);

/** The event as a sentence, with its reason and its failure. */
export function inWords(event: EventResponse): string {
  const { reason, message, exit_code, signal, oom_killed } = factsOf(event);
  const facts = [
    ...destinationOf(event),
    PLAIN.has(reason ?? '') ? undefined : reason?.replaceAll('_', ' '),
    signal == null ? undefined : `killed by signal ${signal}`,
    exit_code == null ? undefined : `exit code ${exit_code}`,
    oom_killed === true ? 'out of memory' : undefined,
    message ?? undefined,
  ].filter((fact) => fact !== undefined);
  const title = WORDS[event.event_type] ?? spelled(event.event_type);
  return facts.length === 0 ? title : `${title}: ${facts.join(', ')}`;
}

/** `api_key_created` as `Api key created`. */
function spelled(type: string): string {
  const words = type.replaceAll('_', ' ');
  return words.slice(0, 1).toUpperCase() + words.slice(1);
}

function destinationOf(event: EventResponse): string[] {
  const { domain, address, port, secret } = factsOf(event);
  const host = domain ?? address ?? undefined;
  const destination = host === undefined || port == null ? host : `${host} port ${port}`;
  return [secret, destination].filter((fact) => fact !== undefined);
}

/** Undefined while the command runs, or when nothing is known of its end. */
export function commandInWords(command: SandboxCommand | null | undefined): string | undefined {
  if (command?.status !== 'exited' && command?.status !== 'killed') return undefined;
  if (command.oom_killed === true) return 'its command ran out of memory and was killed';
  if (command.signal !== null) return `its command was killed by signal ${command.signal}`;
  return `its command ended with code ${command.exit_code}`;
}
