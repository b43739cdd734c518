/** An answer of the gateway itself. */
export interface Refusal {
  status: number;
  code:
    'network_policy_denied' | 'secret_policy_denied' | 'invalid_request' | 'gateway_busy' | 'upstream_failed';
  message: string;
  domain: string;
}

export function refusalText({ code, message, domain }: Refusal): string {
  return JSON.stringify({ code, message, domain });
}

/** Flat: name, value, name, value. */
export function refusalHeaders(text: string): string[] {
  return ['content-type', 'application/json', 'content-length', String(Buffer.byteLength(text))];
}
