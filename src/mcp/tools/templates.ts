import { Type } from 'typebox';
import type { Page } from '../../lib/page.js';
import { parseTemplateName } from '../../templates/reference.js';
import type { TemplateResponse } from '../../templates/schema.js';
import type { Api } from '../api.js';
import { eventsOf } from '../events.js';
import { Refusal } from '../refusal.js';
import { isUuid } from '../sandbox-path.js';
import { jsonResult, READS, textResult, tool } from '../tool.js';
import { untilOver } from '../until-over.js';
import { networkInput, networkOf } from './network.js';
import { labelsInput, startFields, startSandboxOf } from './start-sandbox.js';

const LIST = { default: 20, max: 100 };
const MOST_COMMANDS = 100;
/** The characters of the end of a log in a result. */
const LOG_CHARS = { default: 16 * 1024, max: 128 * 1024 };
/** The log of a build that runs is followed for so long after its last piece. */
const QUIET_MS = 1_000;
const LONGEST_MS = 10_000;

const templateInput = {
  template: Type.String({
    minLength: 1,
    maxLength: 257,
    description:
      'The name and the tag, such as `agent:1`, or the id of a build. Default of the tag: `latest`.',
  }),
};

const buildTemplate = tool({
  name: 'build_template',
  title: 'Build a template from commands',
  description:
    'Begins with an image or a template, runs commands in it as root one after the other, and keeps the result under a name and a tag. Start any number of sandboxes from it with start_from_template. Commands that an earlier build ran are not run again. A failed command fails the build.',
  scopes: ['sandboxes:write'],
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false },
  input: {
    tag: Type.String({
      minLength: 1,
      maxLength: 257,
      description:
        'The name and the tag, such as `agent:1`. Default of the tag: `latest`. A template that has it is replaced.',
    }),
    from: Type.String({
      minLength: 1,
      maxLength: 512,
      description: 'The image, such as `python:3.13-slim`, or a template, such as `template:agent:1`.',
    }),
    commands: Type.Array(Type.String({ minLength: 1 }), {
      minItems: 1,
      maxItems: MOST_COMMANDS,
      description: 'Commands for the shell of the image, such as `pip install numpy`.',
    }),
    ...networkInput,
    labels: Type.Optional(labelsInput),
  },
  async call({ tag, from, commands, labels, ...input }, { api, progress }) {
    const query = {
      tag,
      sandbox: JSON.stringify({ network: networkOf(input) }),
      ...(labels ? { labels: JSON.stringify(labels) } : {}),
    };
    progress(`building ${tag}`);
    const { id } = await api.json<TemplateResponse>({
      method: 'POST',
      path: '/v1/templates',
      query,
      body: { from, commands },
    });
    return result(await untilOver(() => getById(api, id)));
  },
});

const listTemplates = tool({
  name: 'list_templates',
  title: 'List templates',
  description: 'Lists templates and their builds, the newest first.',
  scopes: ['sandboxes:read'],
  annotations: READS,
  input: {
    name: Type.Optional(Type.String({ minLength: 1, description: 'Only templates with this name.' })),
    limit: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: LIST.max,
        default: LIST.default,
        description: `The most templates of the answer. Default: ${LIST.default}.`,
      }),
    ),
    cursor: Type.Optional(
      Type.String({ description: 'The `next_cursor` of the previous answer, with the same filters.' }),
    ),
  },
  async call({ name, limit = LIST.default, cursor }, { api }) {
    const query = {
      limit: String(limit),
      ...(name === undefined ? {} : { name }),
      ...(cursor === undefined ? {} : { cursor }),
    };
    const page = await api.json<Page<TemplateResponse>>({ method: 'GET', path: '/v1/templates', query });
    return jsonResult({ templates: page.data.map(present), next_cursor: page.next_cursor });
  },
});

const getTemplate = tool({
  name: 'get_template',
  title: 'Get a template',
  description: 'Returns a template with its Dockerfile, or the progress of its build.',
  scopes: ['sandboxes:read'],
  annotations: READS,
  input: templateInput,
  async call({ template }, { api }) {
    return result(await find(api, template));
  },
});

const readTemplateLog = tool({
  name: 'read_template_log',
  title: 'Read the log of a build',
  description: 'Returns the end of the log of the newest build of a template: its steps and their output.',
  scopes: ['sandboxes:read'],
  annotations: READS,
  input: {
    ...templateInput,
    max_chars: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: LOG_CHARS.max,
        default: LOG_CHARS.default,
        description: `The most characters of the result. Default: ${LOG_CHARS.default}.`,
      }),
    ),
  },
  async call({ template, max_chars: most = LOG_CHARS.default }, { api }) {
    const { id } = await find(api, template, { isNewest: true });
    const { text, status } = await logOf(api, id, most);
    return textResult(`${text}\n(${status === undefined ? 'the build goes on' : `the build: ${status}`})`);
  },
});

const startFromTemplate = tool({
  name: 'start_from_template',
  title: 'Create and start a sandbox from a template',
  description:
    'Creates an isolated sandbox whose disk begins as a template, starts it, and waits until it runs. Network, lifetime and removal are as in create_sandbox.',
  scopes: ['sandboxes:write'],
  annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: false },
  input: {
    template: Type.String({
      minLength: 1,
      maxLength: 257,
      description: 'The name and the tag, such as `agent:1`. Default of the tag: `latest`.',
    }),
    ...startFields,
  },
  async call({ template, ...input }, context) {
    return startSandboxOf({ type: 'template', ...namedBy(template) }, input, context);
  },
});

const deleteTemplate = tool({
  name: 'delete_template',
  title: 'Delete a template',
  description:
    'Deletes a template, or cancels its build. Sandboxes that were started from it keep their disks.',
  scopes: ['sandboxes:write'],
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false },
  input: templateInput,
  async call({ template }, { api }) {
    const id = isUuid(template) ? template : (await find(api, template)).id;
    return jsonResult(await api.json({ method: 'DELETE', path: `/v1/templates/${id}` }));
  },
});

function namedBy(text: string): { name: string; tag: string } {
  const named = parseTemplateName(text);
  if (named) return named;
  throw new Refusal('invalid_request', `"${text}" is no name and tag of a template, such as agent:1`, {
    status: 400,
    details: null,
    retryAfter: undefined,
  });
}

function getById(api: Api, id: string): Promise<TemplateResponse> {
  return api.json({ method: 'GET', path: `/v1/templates/${encodeURIComponent(id)}` });
}

/** The one that has the tag, or the newest build with it. */
async function find(api: Api, reference: string, { isNewest = false } = {}): Promise<TemplateResponse> {
  if (isUuid(reference)) return getById(api, reference);
  const named = namedBy(reference);
  const read = async (more: Record<string, string>) => {
    const query = { ...named, ...more, limit: '1' };
    const page = await api.json<Page<TemplateResponse>>({ method: 'GET', path: '/v1/templates', query });
    return page.data[0];
  };
  const found = (isNewest ? undefined : await read({ status: 'succeeded' })) ?? (await read({}));
  if (found) return found;
  throw new Refusal('template_not_found', `there is no template "${named.name}:${named.tag}"`, {
    status: 404,
    details: null,
    retryAfter: undefined,
  });
}

/** The end of a log. `status`: undefined while the build goes on. */
async function logOf(
  api: Api,
  id: string,
  most: number,
): Promise<{ text: string; status: string | undefined }> {
  const answer = await api.send({ method: 'GET', path: `/v1/templates/${id}/log` });
  let text = '';
  let isQuiet = false;
  const quiet = setTimeout(() => {
    isQuiet = true;
    answer.destroy();
  }, QUIET_MS);
  const end = performance.now() + LONGEST_MS;
  try {
    for await (const { name, data } of eventsOf(answer)) {
      if (name === 'end') return { text, status: (JSON.parse(data) as { status: string }).status };
      if (name !== 'log') continue;
      quiet.refresh();
      text = (text + (JSON.parse(data) as { text: string }).text).slice(-most);
      if (performance.now() > end) break;
    }
  } catch (error) {
    if (!isQuiet) throw error;
  } finally {
    clearTimeout(quiet);
  }
  return { text, status: undefined };
}

function result(template: TemplateResponse) {
  const note = noteOn(template);
  const shown = jsonResult({
    ...present(template),
    dockerfile: template.dockerfile,
    ...(note === undefined ? {} : { note }),
  });
  const hasFailed = template.status === 'failed' || template.status === 'cancelled';
  return hasFailed ? { ...shown, isError: true } : shown;
}

function noteOn({ status }: TemplateResponse): string | undefined {
  if (status === 'succeeded') return undefined;
  if (status === 'failed' || status === 'cancelled')
    return 'There is no new template: read_template_log has the output of the commands.';
  return 'The build goes on. Call get_template with the id in some seconds.';
}

function present(one: TemplateResponse) {
  return {
    id: one.id,
    template: `${one.name}:${one.tag}`,
    status: one.status,
    steps: one.steps,
    steps_done: one.steps_done,
    steps_cached: one.steps_cached,
    error: one.error,
    size_bytes: one.size_bytes,
    snapshot: one.snapshot_id,
    digest: one.digest,
    labels: one.labels,
    created_at: one.created_at,
  };
}

export const TEMPLATE_TOOLS = [
  buildTemplate,
  listTemplates,
  getTemplate,
  readTemplateLog,
  startFromTemplate,
  deleteTemplate,
];
