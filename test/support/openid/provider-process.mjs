/**
 * A certified OpenID provider (npm oidc-provider) in a process of its own, with a sign-in page of one field. The parent
 * sends its accounts over the channel of `fork`, and gets the URL.
 */
import { createServer } from 'node:http';
import { Provider } from 'oidc-provider';

/** Claims by account id. */
const accounts = new Map();
let provider;
let callback;
process.on('message', ({ consoleUrl, secret, account, claims }) => {
  if (consoleUrl) open(consoleUrl, secret);
  else accounts.set(account, claims);
  process.send({});
});
process.on('disconnect', () => process.exit());

const server = createServer((request, response) => void serve(request, response));
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const issuer = `http://127.0.0.1:${server.address().port}`;

function open(consoleUrl, secret) {
  provider = new Provider(issuer, {
    clients: [
      {
        client_id: 'sandkeep',
        client_secret: secret,
        redirect_uris: [`${consoleUrl}/sign-in/callback`],
        post_logout_redirect_uris: [`${consoleUrl}/sign-in`],
        backchannel_logout_uri: `${consoleUrl}/sign-in/back-channel-logout`,
        backchannel_logout_session_required: true,
        token_endpoint_auth_method: 'client_secret_post',
      },
    ],
    claims: {
      openid: ['sub', 'sid'],
      email: ['email', 'email_verified'],
      // The claims with which providers describe an account beyond the standard.
      profile: [
        'name',
        'groups',
        'hd',
        'oid',
        'tid',
        'realm_access',
        'preferred_username',
        'federated_claims',
      ],
    },
    cookies: { keys: ['test'] },
    features: {
      devInteractions: { enabled: false },
      backchannelLogout: { enabled: true },
      rpInitiatedLogout: { enabled: true },
    },
    // The claims are in the answer of userinfo only, as by default.
    conformIdTokenClaims: !process.argv.includes('claims-in-id-token'),
    pkce: { required: () => true },
    interactions: { url: (_context, { uid }) => `/interaction/${uid}` },
    findAccount: (_context, id) => ({
      accountId: id,
      claims: () => ({ sub: id, ...accounts.get(id) }),
    }),
    // Its own refuses addresses of this machine.
    fetch: (url, options) => fetch(url, { ...options, dispatcher: undefined }),
    // Nobody is asked for a consent.
    async loadExistingGrant({ oidc }) {
      const grant = new oidc.provider.Grant({
        clientId: oidc.client.clientId,
        accountId: oidc.session.accountId,
      });
      grant.addOIDCScope('openid email profile');
      await grant.save();
      return grant;
    },
  });
  callback = provider.callback();
}
process.send({ issuer });

async function serve(request, response) {
  if (!request.url.startsWith('/interaction/')) return callback(request, response);
  try {
    await provider.interactionDetails(request, response);
    if (request.method !== 'POST') {
      response.setHeader('content-type', 'text/html');
      response.end(
        '<form method="post"><label>Account <input name="account" /></label><button>Continue</button></form>',
      );
      return;
    }
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const account = new URLSearchParams(Buffer.concat(chunks).toString()).get('account');
    const result = accounts.has(account)
      ? { login: { accountId: account } }
      : { error: 'access_denied', error_description: 'no such account' };
    await provider.interactionFinished(request, response, result, { mergeWithLastSubmission: false });
  } catch (error) {
    response.statusCode = 500;
    response.end(String(error));
  }
}
