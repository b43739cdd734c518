import { API_URL } from '../lib/base';
import { plainOf, secretsOf, withMaskedSecrets } from './env-entries';

type Body = Record<string, unknown>;

const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

/** The lines that send the same request, by tool. */
export function equalLines(body: Body, isStarted: boolean): (readonly [string, string])[] {
  const address = `${API_URL}/v1/sandboxes${isStarted ? '?start=true' : ''}`;
  const { env } = body;
  const json = JSON.stringify(env === undefined ? body : { ...body, env: withMaskedSecrets(env) });
  const secrets = secretsOf(env).map(({ key }) => key);
  const curl = [
    `curl ${quoted(address)}`,
    `-H "authorization: Bearer $KEY" -H 'content-type: application/json'`,
    `-d ${quoted(json)}`,
  ].join(' \\\n  ');
  const note = secrets.length === 0 ? '' : `# *** stands for the value of ${secrets.join(', ')}\n`;
  return [
    ['curl', note + curl],
    ['CLI', cliLines(body)],
    ['SDK', sdkLines(body)],
  ];
}

interface Known {
  name?: string;
  image?: { reference?: string };
  resources?: { vcpus?: number; memory_mib?: number };
  labels?: Record<string, string>;
}

const KNOWN = new Set(['name', 'image', 'resources', 'labels', 'env']);

/** Fields that a tool has no option for here are named, so that no line claims to be the whole request. */
function others(body: Body, comment: string): string[] {
  const names = [
    ...Object.keys(body).filter((name) => !KNOWN.has(name)),
    ...secretsOf(body['env']).map(({ key }) => `the secret variable ${key}`),
  ];
  return names.length === 0 ? [] : [`${comment} not in these lines: ${names.join(', ')}`];
}

function cliLines(body: Body): string {
  const { name = '', image, resources, labels = {} } = body as Known;
  const options = [
    `--name ${quoted(name)}`,
    ...(resources?.vcpus === undefined ? [] : [`-c ${resources.vcpus}`]),
    ...(resources?.memory_mib === undefined ? [] : [`-m ${resources.memory_mib}M`]),
    ...Object.entries(labels).map(([key, value]) => `--label ${quoted(`${key}=${value}`)}`),
    ...plainOf(body['env']).map(({ key, value }) => `-e ${quoted(`${key}=${value}`)}`),
  ];
  return [
    `export MSB_BACKEND=cloud MSB_API_URL=${API_URL} MSB_API_KEY="$KEY"`,
    `msb create ${quoted(image?.reference ?? '')} ${options.join(' ')}`,
    ...others(body, '#'),
  ].join('\n');
}

function sdkLines(body: Body): string {
  const { name = '', image, resources, labels = {} } = body as Known;
  const text = (value: string) => JSON.stringify(value);
  return [
    `import { Sandbox, setDefaultBackend } from 'microsandbox';`,
    ``,
    `setDefaultBackend({ kind: 'cloud', url: '${API_URL}', apiKey: process.env.KEY });`,
    `const sandbox = await Sandbox.builder(${text(name)})`,
    `  .image(${text(image?.reference ?? '')})`,
    ...(resources?.vcpus === undefined ? [] : [`  .cpus(${resources.vcpus})`]),
    ...(resources?.memory_mib === undefined ? [] : [`  .memory(${resources.memory_mib})`]),
    ...Object.entries(labels).map(([key, value]) => `  .label(${text(key)}, ${text(value)})`),
    ...plainOf(body['env']).map(({ key, value }) => `  .env(${text(key)}, ${text(value)})`),
    `  .create();`,
    ...others(body, '//'),
  ].join('\n');
}
