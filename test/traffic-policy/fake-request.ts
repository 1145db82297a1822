import type {
  PolicyConnection,
  PolicyEndpoint,
  PolicyRequest,
  PolicyResponse,
  PolicyTls,
} from '../../src/traffic-policy/policy-subjects.ts';
import { takeOwnCookies } from '../../src/traffic-policy/sign-in/sign-in-cookies.ts';

export const ENDPOINT: PolicyEndpoint = {
  id: 'ep_1',
  url: 'https://cam.example.com',
  protocol: 'https',
  host: 'cam.example.com',
  port: 443,
};

export function connectionFrom(clientIp = '203.0.113.7', more: Partial<PolicyConnection> = {}): PolicyConnection {
  return {
    clientIp,
    clientPort: 50123,
    serverIp: '198.51.100.1',
    serverPort: 443,
    startedAt: Date.UTC(2026, 0, 2, 3, 4, 5),
    tls: null,
    bytesIn: () => 120,
    bytesOut: () => 0,
    ...more,
  };
}

/** What is known of a TLS connection without certificates. */
export const TLS_WITHOUT_CERTIFICATES: PolicyTls = {
  ...{ sni: null, version: '1.3', cipherSuite: null, alpn: null, ja4: null },
  ...{ clientCertificate: null, serverCertificate: null },
};

/** The parts of a request that a test sets; the rest is like a browser's. */
export interface FakeRequest {
  method?: string;
  target?: string;
  host?: string;
  headers?: string[];
  body?: string | Buffer;
  connection?: PolicyConnection;
}

export function requestFor(fake: FakeRequest = {}): PolicyRequest {
  const { method = 'GET', target = '/', host = 'cam.example.com' } = fake;
  const { headers = [], connection = connectionFrom() } = fake;
  const given = ['Host', host, ...headers];
  let body: Buffer = Buffer.from(fake.body ?? '');
  return {
    method,
    target,
    version: 'HTTP/1.1',
    headers: given,
    clientHost: host,
    clientTarget: target,
    ownCookies: takeOwnCookies(given),
    connection,
    endpoint: ENDPOINT,
    readBody: async (limit) => (body.length > limit ? null : body),
    replaceBody(replaced) {
      body = replaced;
      return true;
    },
  };
}

export function responseOf(status = 200, headers: string[] = []): PolicyResponse {
  return { status, headers };
}
