import type { Examples } from '../http/examples.js';

const TEMPLATE = {
  uriTemplate: 'sandkeep://sandboxes/{sandbox}/logs',
  name: 'logs',
  title: 'Log of a sandbox',
  mimeType: 'text/plain',
};

export const mcpExamples: Examples = {
  call_mcp: {
    body: { jsonrpc: '2.0', id: 1, method: 'resources/templates/list' },
    answer: { jsonrpc: '2.0', id: 1, result: { resourceTemplates: [TEMPLATE] } },
  },
};
