import type { ComponentChildren } from 'preact';
import { Link } from 'wouter-preact';
import { actorOf } from '../lib/actor';
import type { TemplateConfig, TemplateResponse } from '../lib/api-types';
import { bytes } from '../lib/bytes';
import { duration } from '../lib/time';
import { Copy } from '../parts/copy';
import { Tags } from '../parts/tags';
import { Time } from '../parts/time';

type Fact = readonly [string, ComponentChildren];

export function factsOf(template: TemplateResponse): Fact[] {
  const { id, steps, steps_done, steps_cached, size_bytes, labels, context_digest, sandbox_id } = template;
  const cached = steps_cached > 0 ? `, ${steps_cached} from the cache` : '';
  return [
    ...(template.target === null ? [] : [['Stage', template.target] as const]),
    ['Steps', steps === 0 ? 'none' : `${steps_done} of ${steps}${cached}`],
    ['Took', tookIn(template)],
    ['Size above the image', size_bytes === null ? '–' : bytes(size_bytes)],
    ['Labels', Object.keys(labels).length === 0 ? 'none' : <Tags of={labels} />],
    ...(sandbox_id === null
      ? []
      : [['Runs in', <Link href={`/sandboxes/${sandbox_id}`}>the sandbox of the build</Link>] as const]),
    ['Files', context_digest === null ? 'none' : <code title={context_digest}>{short(context_digest)}</code>],
    ['Requested', <Time at={template.created_at} />],
    ['By', actorOf({ actor: template.created_by })],
    [
      'Id',
      <>
        <code>{id}</code> <Copy text={id} of="id" />
      </>,
    ],
  ];
}

/** The values that a sandbox of the template has, where its request gives no others. */
export function configFacts({
  env,
  workdir,
  user,
  cmd,
  entrypoint,
  labels,
  exposed,
}: TemplateConfig): Fact[] {
  const words = (list: readonly string[] | null, without: string) =>
    list === null ? without : <code>{JSON.stringify(list)}</code>;
  const noted: Fact[] = [
    ...(Object.keys(labels).length > 0 ? [['LABEL', <Tags of={labels} />] as const] : []),
    ...(exposed.length > 0 ? [['EXPOSE', exposed.join(', ')] as const] : []),
  ];
  return [
    ['Command', words(cmd, 'none')],
    ['Entrypoint', words(entrypoint, 'that of the image')],
    ['User', user ?? 'that of the image'],
    ['Directory', workdir === null ? 'that of the image' : <code>{workdir}</code>],
    [
      'Variables',
      env.length === 0 ? 'none' : <Tags of={Object.fromEntries(env.map(({ key, value }) => [key, value]))} />,
    ],
    ...noted,
  ];
}

/** The beginning of a digest, which tells it from others. */
const short = (digest: string) => `${digest.slice(0, 19)}…`;

function tookIn({ started_at, completed_at, status }: TemplateResponse): string {
  if (started_at === null) return status === 'queued' ? 'it waits for its turn' : '–';
  if (completed_at === null) return 'it is being built';
  return duration((Date.parse(completed_at) - Date.parse(started_at)) / 1000);
}
