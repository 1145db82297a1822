import { once } from 'node:events';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import Provider, { type Configuration } from 'oidc-provider';
import type { requestPublic } from '../../src/traffic-policy/fetch-document.ts';
import { exchange } from './https-exchange.ts';
import { selfSigned } from './self-signed.ts';

export const CLIENT = { client_id: 'cameras', client_secret: 'a secret of the operator' };

/** A certified provider of OpenID Connect on this machine, whose page signs in anyone who types a name. */
export class TestIdentityProvider {
  readonly issuer: string;
  /** People who may no longer sign in, nor renew a session. */
  readonly removed = new Set<string>();
  /** Paths that the gateway has asked for. */
  readonly asked: string[] = [];
  /** Whether it can be reached. */
  isUp = true;
  /** Called before a request of the gateway is sent, and after it was answered. */
  onSend: () => void = () => {};
  onAnswer: () => void = () => {};
  readonly #server: Server;

  private constructor(server: Server, port: number) {
    this.#server = server;
    this.issuer = `https://idp.localhost:${port}`;
  }

  /** @param redirects URLs of the gateway's endpoints to which people may return */
  static async start(redirects: string[], more: Configuration = {}): Promise<TestIdentityProvider> {
    const server = createServer(await selfSigned());
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const idp = new TestIdentityProvider(server, (server.address() as AddressInfo).port);
    const provider = new Provider(idp.issuer, {
      clients: [
        { ...CLIENT, redirect_uris: redirects, grant_types: ['authorization_code', 'refresh_token'], scope: SCOPES },
      ],
      scopes: SCOPES.split(' '),
      claims: { email: ['email', 'email_verified'], profile: ['name'] },
      features: { devInteractions: { enabled: false } },
      interactions: { url: (_, { uid }) => `/interaction/${uid}` },
      cookies: { keys: ['a key of the test'] },
      ttl: {
        AuthorizationCode: 600,
        AccessToken: 600,
        RefreshToken: 86_400,
        IdToken: 600,
        Interaction: 600,
        Session: 86_400,
        Grant: 86_400,
      },
      issueRefreshToken: async () => true,
      findAccount: async (_, id) => {
        if (idp.removed.has(id)) return undefined;
        const claims = {
          sub: id,
          email: `${id}@example.com`,
          email_verified: id !== 'mallory',
          name: id.toUpperCase(),
        };
        return { accountId: id, claims: async () => claims };
      },
      loadExistingGrant: async ({ oidc }) => {
        const accountId = oidc.session?.accountId;
        const grant = new provider.Grant({ clientId: CLIENT.client_id, ...(accountId && { accountId }) });
        grant.addOIDCScope(SCOPES);
        await grant.save();
        return grant;
      },
      ...more,
    });
    const callback = provider.callback();
    server.on('request', async (req, res) => {
      if (!req.url?.startsWith('/interaction/')) return callback(req, res);
      if (req.method === 'GET') {
        res.setHeader('content-type', 'text/html');
        return res.end('<form method="post"><input name="name" aria-label="Name"><button>Continue</button></form>');
      }
      const accountId = new URLSearchParams(await text(req)).get('name') ?? '';
      const declined = { error: 'access_denied', error_description: 'declined' };
      return provider.interactionFinished(req, res, accountId === '' ? declined : { login: { accountId } });
    });
    return idp;
  }

  /** Reaches it as the gateway does: by a name that is not public. */
  readonly send: typeof requestPublic = async (url, _maxBytes, request = {}) => {
    const { pathname } = new URL(url);
    this.asked.push(pathname);
    if (!this.isUp) throw new Error('connection refused');
    this.onSend();
    return exchange(url, request).finally(this.onAnswer);
  };

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }
}

const SCOPES = 'openid profile email offline_access';
