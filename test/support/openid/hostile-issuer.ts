import { exportJWK, generateKeyPair, SignJWT, type JWK } from 'jose';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

type Handler = (request: IncomingMessage, response: ServerResponse, url: URL) => void | Promise<void>;

export interface HostileIssuer {
  issuer: string;
  /** Replaces the answer at a path: `/.well-known/openid-configuration`, `/token`, `/keys` or `/userinfo`. */
  answer(path: string, handler: Handler): void;
  /** Every path of a request, in order. */
  asked: string[];
  /** A token that the published key signs. */
  sign(claims: Record<string, any>, header?: Record<string, string>): Promise<string>;
  /** A token of another key under the same key id. */
  forge(claims: Record<string, any>): Promise<string>;
  close(): Promise<void>;
}

export const json = (value: unknown): Handler => {
  return (_request, response) => {
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify(value));
  };
};

/** An issuer whose every answer a test decides. Without a decision it behaves. */
export async function startHostileIssuer(): Promise<HostileIssuer> {
  const [own, other] = await Promise.all([generateKeyPair('RS256'), generateKeyPair('RS256')]);
  const key: JWK = { ...(await exportJWK(own.publicKey)), kid: 'one', alg: 'RS256', use: 'sig' };
  const handlers = new Map<string, Handler>();
  const asked: string[] = [];
  const server = createServer((request, response) => {
    const url = new URL(request.url!, 'http://issuer');
    asked.push(url.pathname);
    const handler = handlers.get(url.pathname);
    if (handler) void handler(request, response, url);
    else response.writeHead(404).end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  handlers.set('/.well-known/openid-configuration', json(metadataOf(issuer)));
  handlers.set('/keys', json({ keys: [key] }));
  const signed = (claims: Record<string, any>, header: Record<string, string>, { privateKey }: typeof own) =>
    new SignJWT(claims).setProtectedHeader({ alg: 'RS256', kid: 'one', ...header }).sign(privateKey);
  return {
    issuer,
    asked,
    answer: (path, handler) => void handlers.set(path, handler),
    sign: (claims, header = {}) => signed(claims, header, own),
    forge: (claims) => signed(claims, {}, other),
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

export function metadataOf(issuer: string): Record<string, unknown> {
  return {
    issuer,
    authorization_endpoint: `${issuer}/authorize`,
    token_endpoint: `${issuer}/token`,
    userinfo_endpoint: `${issuer}/userinfo`,
    jwks_uri: `${issuer}/keys`,
    response_types_supported: ['code'],
    subject_types_supported: ['public'],
    id_token_signing_alg_values_supported: ['RS256'],
    authorization_response_iss_parameter_supported: true,
  };
}
