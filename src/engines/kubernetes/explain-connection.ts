import { clusterMessage, statusOf } from './errors.js';

/** Why the API server cannot be used, for the operator. */
export function explainConnection(error: unknown): string {
  const status = statusOf(error);
  if (status === 401) return 'the cluster does not accept the credentials';
  if (status !== undefined) return `the cluster refuses a request: ${clusterMessage(error)}`;
  const { cause } = error as { cause?: { code?: string } };
  const { code, message } = error as { code?: string; message?: string };
  return `the cluster does not answer (${code ?? cause?.code ?? message ?? String(error)})`;
}
