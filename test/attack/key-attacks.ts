import { createPublicKey, type KeyObject, randomBytes } from 'node:crypto';
import { createServer as createHttpsServer } from 'node:https';
import { connect as connectTls, createServer as createTlsServer } from 'node:tls';
import { type Attack, held, type Life, openTls } from './attack.ts';
import { chainWith, longExponentKey, madeUpKey } from './costly-certificates.ts';
import { ANSWER, action, getOf, HostileEndpoint, lazyServer, onRequest } from './hostile-endpoint.ts';

/** More than any agent or server needs: OpenSSL signs for ten seconds. */
const MADE_UP_BITS = 32_768;
/** As many as OpenSSL's limit of 100 KiB for a server's certificates has room for. */
const SERVER_CHAIN = 60;
/** As many as the gateway's limit of 16 KiB for a client's handshake has room for. */
const CLIENT_CHAIN = 10;

const lazily = <T>(make: () => T) => {
  let made: T | null = null;
  return () => {
    made ??= make();
    return made;
  };
};
const madeUp = lazily(() => madeUpKey(MADE_UP_BITS));
const costlyKey: () => KeyObject = lazily(longExponentKey);

const longKey = new HostileEndpoint('long-key.localhost', {
  proto: 'tls',
  options() {
    const { cert, key } = madeUp();
    const [certificate, privateKey] = [cert, key].map((pem) => Buffer.from(pem).toString('base64'));
    return { TLSTermination: { cert: certificate, key: privateKey } };
  },
});

const templatedKey = new HostileEndpoint('templated-key.localhost', {
  proto: 'tls',
  options() {
    const { cert, key } = madeUp();
    // What is behind the key comes only with a connection, so the policy is accepted without the key.
    const template = `${key}\${conn.client_ip == '' ? 'x' : ''}`;
    const config = { server_certificate: cert, server_private_key: template };
    return { TrafficPolicy: JSON.stringify({ on_tcp_connect: [action('terminate-tls', config)] }) };
  },
});

/** A handshake, for as long as the gateway takes over it. */
async function handshake(endpoint: HostileEndpoint, life: Life): Promise<void> {
  await endpoint.online(life);
  const socket = await openTls(life.target.httpsPort, endpoint.host, life);
  socket.destroy();
}

const chainServer = lazyServer(() =>
  createTlsServer(chainWith(costlyKey(), SERVER_CHAIN)).on('tlsClientError', () => {}),
);

const chains = new HostileEndpoint('chains.localhost', {
  async options(target) {
    const url = `https://127.0.0.1:${await chainServer(target)}/`;
    return { TrafficPolicy: onRequest(action('http-request', { url }), ANSWER) };
  },
});

const clientChain = lazily(() => chainWith(costlyKey(), CLIENT_CHAIN));

const mutualTls = new HostileEndpoint('mutual-tls.localhost', {
  options({ authority }) {
    // It has signed none of the clients' certificates: those are verified all the same.
    const authorities = Buffer.from(authority).toString('base64');
    return { MutualTLSCA: { mutual_tls_ca: authorities }, TrafficPolicy: onRequest(ANSWER) };
  },
});

/** A handshake with a chain of certificates, which the gateway has to check before it knows that nobody trusts them. */
async function handshakeWithChain(life: Life): Promise<void> {
  await mutualTls.online(life);
  const { httpsPort: port } = life.target;
  const address = { host: '127.0.0.1', port, localAddress: life.from };
  const servername = mutualTls.host;
  const socket = connectTls({ ...address, ...clientChain(), servername, rejectUnauthorized: false });
  socket.on('error', () => {});
  life.signal.addEventListener('abort', () => socket.destroy(), { once: true });
  socket.once('secureConnect', () => socket.write(getOf(mutualTls.host)));
  setTimeout(() => socket.destroy(), 2000);
  await held(socket);
}

const keyServer = lazyServer(({ serverPair }) =>
  createHttpsServer(serverPair, (_req, res) => {
    const jwk = { ...createPublicKey(costlyKey()).export({ format: 'jwk' }), kid: 'costly' };
    res.end(JSON.stringify({ keys: [jwk] }));
  }),
);

const tokens = new HostileEndpoint('tokens.localhost', {
  async options(target) {
    const jwks = `https://127.0.0.1:${await keyServer(target)}/keys`;
    const config = {
      issuer: { allow_list: [{ value: 'https://issuer.example.com' }] },
      http: { tokens: [{ type: 'jwt', method: 'header', name: 'Authorization', prefix: 'Bearer ' }] },
      jws: { allowed_algorithms: ['RS256'], keys: { sources: { additional_jkus: [jwks] } } },
    };
    return { TrafficPolicy: onRequest(action('jwt-validation', config), ANSWER) };
  },
});

/** A token whose signature is wrong, which is as costly to find out as that it is right. */
function madeUpToken(): string {
  const claims = { iss: 'https://issuer.example.com', exp: Math.floor(Date.now() / 1000) + 600 };
  const [head, payload] = [{ alg: 'RS256', kid: 'costly' }, claims].map((part) =>
    Buffer.from(JSON.stringify(part)).toString('base64url'),
  );
  // Less than the modulus.
  const signature = Buffer.concat([Buffer.alloc(1), randomBytes(383)]);
  return `${head}.${payload}.${signature.toString('base64url')}`;
}

/** Keys and certificates that a tenant chooses so that the gateway takes long over them. */
export const KEY_ATTACKS: Attack[] = [
  { name: 'tenant: key of 32,768 bits', width: 2, live: (life) => handshake(longKey, life) },
  { name: 'tenant: templated key of 32,768 bits', width: 2, live: (life) => handshake(templatedKey, life) },
  { name: 'tenant: server with 60 costly certificates', width: 8, live: (life) => chains.ask(life, 50) },
  { name: 'tenant: clients with 10 costly certificates', width: 24, live: handshakeWithChain },
  {
    name: 'tenant: tokens for a costly key',
    width: 8,
    live: (life) => tokens.ask(life, 40, () => getOf(tokens.host, '/', `Authorization: Bearer ${madeUpToken()}\r\n`)),
  },
];
