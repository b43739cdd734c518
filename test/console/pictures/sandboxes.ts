import { IMAGES } from './images.js';

/** A sandbox of the filled organization, with the state that it is to reach. */
export interface Wanted {
  name: string;
  image: keyof typeof IMAGES;
  team: string;
  labels?: Record<string, string>;
  vcpus?: number;
  memory_mib?: number;
  /** A command for sh. Without one the image's own runs, which a started sandbox then waits for. */
  run?: string;
  state: 'created' | 'running' | 'stopped' | 'failed' | 'waiting' | 'ended' | 'deleted';
  more?: Record<string, unknown>;
}

const SERVE =
  'mkdir -p /srv/page; echo "<h1>Preview</h1>" > /srv/page/index.html; echo "Serving on port 8000"; ' +
  'exec busybox httpd -f -p 8000 -h /srv/page';
/** A log that grows, and use of the processor that rises and falls. */
const WORK =
  'n=0; echo "agent started, queue: tasks"; while true; do n=$((n + 1)); ' +
  'echo "$(date -u +%H:%M:%S) INFO task $n finished in $((n % 7 + 1)).$((n % 10)) s"; ' +
  '[ $((n % 6)) = 0 ] && echo "retry: the tool answered 503" >&2; ' +
  'head -c $((n % 5 * 400000)) /dev/urandom | gzip -c > /tmp/result-$((n % 9)).gz; sleep 2; done';
const IDLE = 'exec sleep 86400';
const DENIED =
  'while true; do for host in pypi.org telemetry.example.net metadata.google.internal; do ' +
  'nslookup $host >/dev/null 2>&1; done; sleep 5; done';

export const WANTED: readonly Wanted[] = [
  ...['amber', 'basalt', 'cobalt', 'dune'].map((name): Wanted => ({
    name: `agent-${name}`,
    image: 'agent',
    team: 'research',
    labels: { env: 'prod', owner: 'ada' },
    vcpus: 2,
    memory_mib: 512,
    run: WORK,
    state: 'running',
  })),
  {
    name: 'agent-crawler',
    image: 'agent',
    team: 'research',
    labels: { env: 'prod' },
    vcpus: 1,
    memory_mib: 256,
    run: DENIED,
    state: 'running',
    more: {
      network: {
        policy: {
          default_egress: 'deny',
          default_ingress: 'deny',
          rules: [
            {
              direction: 'egress',
              action: 'allow',
              destination: { domain_suffix: 'example.com' },
              protocols: ['tcp'],
              ports: [{ start: 443, end: 443 }],
            },
          ],
        },
      },
    },
  },
  ...[481, 502, 517].map((pull): Wanted => ({
    name: `web-preview-${pull}`,
    image: 'node',
    team: 'web',
    labels: { env: 'preview', pull: String(pull) },
    vcpus: 1,
    memory_mib: 256,
    run: SERVE,
    state: 'running',
  })),
  ...['amelia', 'chen'].map((name): Wanted => ({
    name: `notebook-${name}`,
    image: 'agent',
    team: 'ml',
    vcpus: 2,
    memory_mib: 2048,
    run: IDLE,
    state: 'running',
  })),
  {
    name: 'eval-small-instruct-against-the-november-questions',
    image: 'train',
    team: 'ml',
    labels: { env: 'batch', suite: 'november', owner: 'chen' },
    vcpus: 2,
    memory_mib: 1024,
    run: WORK,
    state: 'running',
  },
  {
    name: 'etl-orders',
    image: 'runner',
    team: 'data',
    vcpus: 2,
    memory_mib: 512,
    run: IDLE,
    state: 'running',
  },
  {
    name: 'ci-main-20418',
    image: 'runner',
    team: 'ci',
    labels: { branch: 'main' },
    vcpus: 2,
    memory_mib: 512,
    run: IDLE,
    state: 'running',
  },
  ...['embeddings', 'reranker'].map((name): Wanted => ({
    name: `train-${name}`,
    image: 'train',
    team: 'ml',
    labels: { env: 'batch' },
    vcpus: 2,
    memory_mib: 4096,
    run: IDLE,
    state: 'waiting',
  })),
  {
    name: 'index-manuals',
    image: 'runner',
    team: 'data',
    vcpus: 1,
    memory_mib: 256,
    run: 'echo "reading 1,204 manuals"; sleep 1; echo "no such index: manuals-2026" >&2; exit 3',
    state: 'ended',
  },
  {
    name: 'parse-archive',
    image: 'runner',
    team: 'data',
    vcpus: 1,
    memory_mib: 32,
    run: 'echo "unpacking"; tail /dev/zero',
    state: 'ended',
  },
  {
    name: 'agent-nightly',
    image: 'agent',
    team: 'research',
    vcpus: 1,
    memory_mib: 256,
    run: 'python3 main.py',
    state: 'failed',
    more: { image: { type: 'oci', reference: 'registry.example.com/agents/python:3.99' } },
  },
  {
    name: 'web-preview-499',
    image: 'node',
    team: 'web',
    labels: { env: 'preview', pull: '499' },
    state: 'failed',
    more: { image: { type: 'oci', reference: 'registry.example.com/web/node:21' } },
  },
  ...[
    'etl-customers',
    'etl-stock',
    'ci-main-20417',
    'ci-release-9',
    'web-preview-466',
    'web-preview-470',
  ].map((name): Wanted => ({
    name,
    image: name.startsWith('web') ? 'node' : 'runner',
    team: name.startsWith('etl') ? 'data' : name.startsWith('ci') ? 'ci' : 'web',
    vcpus: 1,
    memory_mib: 256,
    run: IDLE,
    state: 'stopped',
  })),
  {
    name: 'agent-template-test',
    image: 'agent',
    team: 'research',
    vcpus: 1,
    memory_mib: 256,
    state: 'created',
  },
  { name: 'train-tokenizer', image: 'train', team: 'ml', vcpus: 2, memory_mib: 4096, state: 'created' },
  { name: 'web-preview-460', image: 'node', team: 'web', vcpus: 1, memory_mib: 256, state: 'deleted' },
  { name: 'web-preview-520', image: 'node', team: 'web', vcpus: 1, memory_mib: 256, state: 'created' },
];

export function requestOf({ name, image, team, labels, vcpus = 1, memory_mib = 256, run, more }: Wanted) {
  return {
    name,
    image: { type: 'oci', reference: IMAGES[image] },
    pull_policy: more === undefined || !('image' in more) ? 'never' : 'if_missing',
    resources: { vcpus, memory_mib },
    labels: { team, ...labels },
    runtime: { workdir: '/app', ...(run === undefined ? {} : { cmd: ['sh', '-c', run] }) },
    ...more,
  };
}
