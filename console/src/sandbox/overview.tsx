import { actorOf } from '../lib/actor';
import type { JSX } from 'preact';
import type { EventResponse, PublishedPortSpec, SandboxResponse } from '../lib/api-types';
import { bytes } from '../lib/bytes';
import { may } from '../lib/session';
import { CodeLines, Copy } from '../parts/copy';
import { Facts } from '../parts/facts';
import { Loaded } from '../parts/loaded';
import { Tags } from '../parts/tags';
import { Time } from '../parts/time';
import { factsOf, useHistory } from './history';
import { CostShare } from './cost-share';
import { LiveUse } from './live-use';
import { ProgramLines } from './program-lines';
import { ENDS, RunStrip, runsOf } from './run-strip';
import { commandInWords, inWords } from './words';

const MIB = 1024 ** 2;

export function Overview({ sandbox }: { sandbox: SandboxResponse }) {
  const { spec } = sandbox;
  const waits = sandbox.status === 'starting' && sandbox.status_reason != null;
  const ended = commandInWords(sandbox.command);
  return (
    <>
      {sandbox.last_failure_message != null && !waits && (
        <p class={sandbox.status === 'failed' ? 'panel fault' : 'panel'}>
          Latest failure: {sandbox.last_failure_message}
        </p>
      )}
      {waits && (
        <p class="panel">
          It waits: {sandbox.status_reason?.replaceAll('_', ' ')}
          {sandbox.last_failure_message != null && `: ${sandbox.last_failure_message}`}.
        </p>
      )}
      {sandbox.status === 'running' && ended !== undefined && (
        <p class={sandbox.command?.exit_code === 0 ? 'panel' : 'panel fault'}>
          <span>
            The sandbox runs, but {ended}: <Time at={sandbox.command?.ended_at} />.
          </span>
        </p>
      )}
      {sandbox.status === 'stopped' && sandbox.stop_message != null && (
        <p class="panel">
          {sandbox.paused_at == null ? 'It stopped' : 'It is paused'}: {sandbox.stop_message}.
        </p>
      )}
      <section class="panel" aria-label="Facts">
        <Facts
          of={[
            ['Image', <code key="image">{spec?.image ?? '–'}</code>],
            ['vCPUs', spec?.resources.vcpus ?? '–'],
            ['Memory', spec?.resources.memory_mib == null ? '–' : bytes(spec.resources.memory_mib * MIB)],
            [
              'Disk',
              spec?.resources.disk_size_mib == null ? 'no limit' : bytes(spec.resources.disk_size_mib * MIB),
            ],
            ...portFacts(spec?.network.ports ?? []),
            ['Created', <Time key="created" at={sandbox.created_at} />],
            ['Started', <Time key="started" at={sandbox.started_at} />],
            ['Stopped', <Time key="stopped" at={sandbox.stopped_at} />],
            ['Runtime', sandbox.runtime ?? 'imported history'],
            ['Slug', sandbox.slug],
            [
              'Id',
              <>
                <code>{sandbox.id}</code> <Copy text={sandbox.id} of="id" />
              </>,
            ],
            [
              'Labels',
              Object.keys(spec?.labels ?? {}).length === 0 ? 'none' : <Tags of={spec?.labels ?? {}} />,
            ],
          ]}
        />
      </section>
      {sandbox.status === 'running' && <LiveUse sandbox={sandbox} />}
      {may('billing:read') && (
        <section class="panel" aria-labelledby="cost">
          <h2 id="cost">Cost so far</h2>
          <CostShare sandboxId={sandbox.id} />
        </section>
      )}
      <RunsOf sandbox={sandbox} />
      {may('events:read') && <Timeline sandbox={sandbox} />}
      <ProgramLines sandbox={sandbox} />
      <details class="panel">
        <summary>Specification</summary>
        <CodeLines text={JSON.stringify(spec, null, 2)} of="specification" />
      </details>
    </>
  );
}

function RunsOf({ sandbox }: { sandbox: SandboxResponse }) {
  const ends = useHistory(sandbox, ENDS).data?.data ?? [];
  // A start that failed has an end without a run.
  if (runsOf(sandbox, ends, Date.now()).length === 0) return null;
  return (
    <section class="panel" aria-labelledby="runs">
      <h2 id="runs">Runs</h2>
      <RunStrip sandbox={sandbox} ends={ends} />
    </section>
  );
}

function portFacts(ports: readonly PublishedPortSpec[]): readonly (readonly [string, JSX.Element])[] {
  if (ports.length === 0) return [];
  const lines = ports.map(({ host_bind: host, host_port: port, guest_port: guest, protocol = 'tcp' }) => {
    const address = `${host.includes(':') ? `[${host}]` : host}:${port}`;
    return (
      <li key={`${protocol} ${address}`}>
        <code>{address}</code> leads to {protocol} port {guest}
      </li>
    );
  });
  return [['Published ports', <ul key="ports">{lines}</ul>]];
}

function Timeline({ sandbox }: { sandbox: SandboxResponse }) {
  const events = useHistory(sandbox, [
    'sandbox_created',
    'sandbox_start_requested',
    'sandbox_start_queued',
    'sandbox_start_waiting',
    'sandbox_image_moved',
    'sandbox_started',
    'sandbox_command_ended',
    'sandbox_stop_requested',
    'sandbox_stopped',
    'sandbox_paused',
    'sandbox_failed',
    'sandbox_renamed',
  ]);
  return (
    <section class="panel" aria-labelledby="timeline">
      <h2 id="timeline">Timeline</h2>
      <Loaded resource={events}>
        {({ data }) => (
          <ol class="timeline">
            {data.map((event) => (
              <li key={event.id} class={isBad(event) ? 'bad' : ''}>
                <span>{inWords(event)}</span>
                <small>
                  <Time at={event.timestamp} /> by {actorOf(event)}
                </small>
              </li>
            ))}
          </ol>
        )}
      </Loaded>
    </section>
  );
}

function isBad(event: EventResponse): boolean {
  if (event.event_type === 'sandbox_command_ended') return factsOf(event).exit_code !== 0;
  return event.event_type === 'sandbox_failed';
}
