import { generateKeyPairSync, randomUUID, sign } from 'node:crypto';
import { createServer as createHttpsServer, type Server as HttpsServer } from 'node:https';
import { createServer, type Server, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import type { KeyPair } from './costly-certificates.ts';

/**
 * A tenant whose endpoints anyone may ask, honest clients and attackers: what its policies may take is divided among them. It has
 * two devices, that is two sessions of one authtoken.
 */
export const SHARED = {
  /** Passes a request on after `http-request` has asked the same path of {@link honestUpstream}. */
  asking: 'asking.localhost',
  /** Replaces text in bodies of requests. */
  searching: 'searching.localhost',
  /** Wants people to sign in at {@link identityProvider}. */
  signIn: 'members.localhost',
  /** Wants them to sign in as people of the gateway; only attackers ask it. */
  people: 'people.localhost',
  /** Its upstream is {@link hungUpstream}. */
  hung: 'hung.localhost',
  /** Another tunnel of the device with the hung upstream. */
  besideHung: 'beside-hung.localhost',
} as const;

/** A replacement that takes some tenths of a second for a MiB of one letter, and next to nothing for other text. */
export const COSTLY = { replacements: [{ from: '(x+)(x+)(x+)[0-9]', to: 'z' }] };

/** Where the policies of the shared tenant lead. */
interface Places {
  upstreamPort: number;
  hungPort: number;
  issuer: string;
}

/** The tunnels of each device of the shared tenant. */
export function sharedTunnels({ upstreamPort: port, hungPort, issuer }: Places) {
  const first = (domain: string, ...actions: object[]) => ({
    domain,
    port,
    policy: { on_http_request: [{ actions }] },
  });
  const members = (domain: string, type: string, config: object) => ({
    domain,
    port,
    policy: { on_http_request: [NO_BOTS, { actions: [{ type, config }] }] },
  });
  return [
    [
      first(SHARED.asking, { type: 'http-request', config: { url: `http://127.0.0.1:${port}\${req.url.path}` } }),
      first(SHARED.searching, { type: 'request-body-find-replace', config: COSTLY }),
      members(SHARED.signIn, 'openid-connect', { issuer_url: issuer, client_id: CLIENT, client_secret: 'secret' }),
      members(SHARED.people, 'gateway-sign-in', {}),
    ],
    [
      { domain: SHARED.hung, port: hungPort },
      { domain: SHARED.besideHung, port },
    ],
  ];
}

const NO_BOTS = { expressions: ['req.user_agent.is_bot'], actions: [{ type: 'deny' }] };

/** An upstream that accepts connections, answers nothing and closes none. */
export function hungUpstream(): Server {
  return createServer({ allowHalfOpen: true }, (socket: Socket) => {
    socket.on('error', () => {}).resume();
  });
}

const CLIENT = 'cameras';
/** Milliseconds that the provider takes to refuse a code. */
const REFUSAL_MS = 500;

/**
 * A provider of OpenID Connect, whose issuer is the server's address. It signs everybody in: the code that people bring back is
 * the `nonce` of their sign-in. Other codes are refused.
 */
export function identityProvider({ cert, key }: KeyPair): HttpsServer {
  const keys = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const jwk = { ...keys.publicKey.export({ format: 'jwk' }), kid: 'only', use: 'sig', alg: 'ES256' };
  const server = createHttpsServer({ cert, key }, async (req, res) => {
    const issuer = issuerOf(server);
    const answer = (status: number, document: object) =>
      res.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(document));
    switch (req.url) {
      case '/.well-known/openid-configuration':
        return answer(200, {
          issuer,
          authorization_endpoint: `${issuer}/authorize`,
          token_endpoint: `${issuer}/token`,
          jwks_uri: `${issuer}/keys`,
          response_types_supported: ['code'],
          subject_types_supported: ['public'],
          id_token_signing_alg_values_supported: ['ES256'],
        });
      case '/keys':
        return answer(200, { keys: [jwk] });
      default: {
        const code = new URLSearchParams(await text(req)).get('code') ?? '';
        if (code.startsWith(MADE_UP)) {
          setTimeout(() => answer(400, { error: 'invalid_grant' }), REFUSAL_MS);
          return;
        }
        const now = Math.floor(Date.now() / 1000);
        const claims = { iss: issuer, sub: 'jo', aud: CLIENT, iat: now, exp: now + 600, nonce: code };
        const person = { email: 'jo@example.com', email_verified: true, name: 'Jo' };
        const signed = [
          { alg: 'ES256', kid: 'only' },
          { ...claims, ...person },
        ]
          .map(encoded)
          .join('.');
        const signature = sign('sha256', Buffer.from(signed), { key: keys.privateKey, dsaEncoding: 'ieee-p1363' });
        const tokens = { access_token: randomUUID(), token_type: 'bearer', expires_in: 600 };
        return answer(200, { ...tokens, id_token: `${signed}.${signature.toString('base64url')}` });
      }
    }
  });
  return server;
}

/** What codes begin with that the provider has not issued. */
export const MADE_UP = 'made-up-';

/** The URL of a listening provider. */
export function issuerOf(server: HttpsServer): string {
  const address = server.address();
  return `https://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`;
}

const encoded = (part: object) => Buffer.from(JSON.stringify(part)).toString('base64url');

/** What a page that asks people to sign in has sent: where to, and the cookies of the attempt. */
export interface Begun {
  state: string;
  nonce: string;
  cookie: string;
}

/** Reads the answer to a browser that is not signed in. @throws Error when it does not lead to the provider */
export function begunBy({ location = '', 'set-cookie': cookies = [] }: Redirect): Begun {
  const { searchParams } = new URL(location);
  const [state, nonce] = ['state', 'nonce'].map((name) => searchParams.get(name));
  if (!state || !nonce) throw new Error('the answer does not lead to the provider');
  return { state, nonce, cookie: cookiesOf(cookies) };
}

interface Redirect {
  location?: string | undefined;
  'set-cookie'?: string[] | undefined;
}

export const cookiesOf = (cookies: readonly string[]) => cookies.map((each) => each.split(';', 1)[0]).join('; ');

/** The path at which people return from the provider. */
export const callbackPath = (code: string, state: string) =>
  `/ngrok/oidc/callback?code=${encodeURIComponent(code)}&state=${encodeURIComponent(state)}`;

/** What browsers send when somebody opens a page. */
export const NAVIGATION = { accept: 'text/html', 'sec-fetch-mode': 'navigate' };
