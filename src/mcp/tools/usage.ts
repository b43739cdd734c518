import { Type } from 'typebox';
import { jsonResult, READS, tool } from '../tool.js';

const getUsage = tool({
  name: 'get_usage',
  title: 'Get the usage of a month',
  description:
    'Returns the compute and storage that the organization used in a UTC month, and its cost if the installation has prices.',
  scopes: ['billing:read'],
  annotations: READS,
  input: {
    month: Type.Optional(
      Type.String({ description: 'The UTC month, such as `2026-11`. Default: the current one.' }),
    ),
  },
  async call({ month }, { api }) {
    const query = month === undefined ? {} : { month };
    const summary = await api.json<object>({ method: 'GET', path: '/v1/billing/usage', query });
    // A point for each metric and day would fill the context of a model.
    return jsonResult({ ...summary, daily: undefined });
  },
});

export const USAGE_TOOLS = [getUsage];
