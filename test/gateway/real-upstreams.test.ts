import { writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { type DirectEndpoint, TestEdge } from '../support/edge.ts';
import { ask } from '../support/http-request.ts';
import { askHttp2, openHttp2 } from '../support/http2-client.ts';
import { type RealUpstream, startUpstream } from '../support/real-upstream.ts';
import { programMissing, unless } from '../support/requirements.ts';
import { sharedFolder } from '../support/temporary-folder.ts';

let edge: TestEdge;
beforeAll(async () => {
  edge = await TestEdge.start();
});
afterAll(() => edge.close());

/** Starts a server for the tests of a suite. */
function serverFor(files: Record<string, string>, command: readonly string[]) {
  const folder = sharedFolder();
  let upstream: RealUpstream | undefined;
  beforeAll(async () => {
    for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
    upstream = await startUpstream(folder, command);
  });
  afterAll(async () => {
    await upstream?.stop();
  });
  let names = 0;
  return async (options: { policy?: object; protocol?: 'http' | 'https' } = {}): Promise<DirectEndpoint> => {
    const endpoint = await edge.serveRaw(`real-${command[0]}-${++names}.localhost`, createServer(), options);
    endpoint.open = () => (upstream as RealUpstream).open();
    return endpoint;
  };
}

const WSGI = `import json
def app(environ, start_response):
    start_response('200 OK', [('Content-Type', 'application/json')])
    return [json.dumps({k: v for k, v in environ.items() if k.startswith('HTTP_')}).encode()]
`;

describe('gunicorn', unless(programMissing('gunicorn', '--version')), () => {
  const command = ['gunicorn', '--bind', 'unix:SOCKET', '--worker-tmp-dir', '/tmp', 'app:app'];
  const serve = serverFor({ 'app.py': WSGI }, command);

  it('sees the headers of the gateway and of the policy only, however clients spell theirs', async () => {
    const actions = [
      { type: 'remove-headers', config: { headers: ['x-user'] } },
      { type: 'add-headers', config: { headers: { 'x-user': 'alice', 'x-role': 'guest' } } },
    ];
    const { host } = await serve({ policy: { on_http_request: [{ actions }] } });
    const headers = {
      ...{ x_forwarded_for: '203.0.113.1', X_Forwarded_Proto: 'https', 'x-forwarded_host': 'evil' },
      ...{ x_user: 'root', X_Role: 'admin', 'x_request-id': 'kept' },
    };
    const environ = JSON.parse((await ask(edge.httpPort, host, { headers })).body);
    expect(environ).toMatchObject({
      HTTP_X_FORWARDED_FOR: '127.0.0.1',
      HTTP_X_FORWARDED_PROTO: 'http',
      HTTP_X_FORWARDED_HOST: host,
      HTTP_X_USER: 'alice',
      HTTP_X_ROLE: 'guest',
      HTTP_X_REQUEST_ID: 'kept',
    });
  });
});

const ASGI = `async def app(scope, receive, send):
    if scope['type'] != 'http':
        return
    body = b''
    while True:
        message = await receive()
        body += message.get('body', b'')
        if not message.get('more_body'):
            break
    await send({'type': 'http.response.start', 'status': 200, 'headers': []})
    text = ' '.join([scope['http_version'], scope['method'], scope['path'], body.decode()])
    await send({'type': 'http.response.body', 'body': text.encode()})
`;

describe('Hypercorn', unless(programMissing('hypercorn', '--help')), () => {
  const serve = serverFor({ 'app.py': ASGI }, ['hypercorn', '--bind', 'unix:SOCKET', 'app:app']);

  it.each(['h2c', 'h2c\xa0', 'h2c\x85', 'H2C'])('is never upgraded to HTTP/2 (%j)', async (protocol) => {
    const { host } = await serve();
    const upgrade = `Connection: Upgrade, HTTP2-Settings\r\nUpgrade: ${protocol}\r\nHTTP2-Settings: AAMAAABkAAQAoAAA\r\n`;
    const text = await edge.raw(`GET /allowed HTTP/1.1\r\nHost: ${host}\r\n${upgrade}\r\n`);
    expect(text).toMatch(/^HTTP\/1\.1 200 /);
    expect(text).toContain('1.1 GET /allowed');
  });

  it('serves HTTP/2 with prior knowledge', async () => {
    const endpoint = await serve({ protocol: 'https' });
    endpoint.http2Upstream = true;
    const session = await openHttp2(edge, endpoint.host);
    onTestFinished(() => session.destroy());
    const post = { ':method': 'POST', ':path': '/up' };
    const answers = await Promise.all([1, 2, 3].map((each) => askHttp2(session, post, `body ${each}`)));
    expect(answers.map(({ body }) => body)).toEqual([1, 2, 3].map((each) => `2 POST /up body ${each}`));
  });
});

/** A connection over a network that takes 15 ms in each direction. */
function overDistance(near: Duplex): Duplex {
  const later = (what: () => void) => setTimeout(what, 15);
  const far = new Duplex({
    allowHalfOpen: true,
    read() {},
    write: (bytes, _encoding, done) => {
      later(() => near.write(bytes));
      done();
    },
    final: (done) => {
      later(() => near.end());
      done();
    },
    destroy: (error, done) => {
      near.destroy();
      done(error);
    },
  });
  near.on('data', (bytes) => later(() => far.push(bytes))).on('end', () => later(() => far.push(null)));
  return far;
}

/** Milliseconds after which nginx closes an idle connection without a word. */
const KEPT_MS = 100;
const NGINX = `daemon off; master_process off; pid nginx.pid; error_log stderr;
events {}
http {
  access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  keepalive_timeout ${KEPT_MS}ms; keepalive_requests 5;
  server {
    listen unix:upstream.sock;
    location = /none { return 204; }
    location = /file { etag on; root .; }
    location / { return 200 "$request_method $request_uri"; }
  }
}
`;

describe('nginx that closes kept connections soon', unless(programMissing('nginx', '-v')), () => {
  const files = { file: 'a file', 'nginx.conf': NGINX };
  const serve = serverFor(files, ['nginx', '-p', './', '-c', 'nginx.conf']);

  it('loses at most the first POST that it closes a connection under', async () => {
    const endpoint = await serve();
    const { open } = endpoint;
    endpoint.open = () => overDistance(open());
    const statuses: number[] = [];
    for (let at = 0; at < 15; at++) {
      statuses.push((await ask(edge.httpPort, endpoint.host, { path: '/pay', body: 'once' })).status);
      // The worst moment: nginx closes the idle connection while the next request is on its way.
      await delay(KEPT_MS - 15);
    }
    expect(statuses.filter((status) => status !== 200).length).toBeLessThanOrEqual(1);
  });

  it('answers requests with and without a body on shared connections, each with its own response', async () => {
    const { host } = await serve();
    const etag = String((await ask(edge.httpPort, host, { path: '/file' })).headers.etag);
    const client = async (number: number) => {
      const path = `/c${number}`;
      const answers = [
        await ask(edge.httpPort, host, { path }),
        await ask(edge.httpPort, host, { path, method: 'HEAD' }),
        await ask(edge.httpPort, host, { path: '/file', headers: { 'if-none-match': etag } }),
        await ask(edge.httpPort, host, { path: '/none' }),
        await ask(edge.httpPort, host, { path: '/file' }),
      ];
      expect(answers.map(({ status, body }) => [status, body])).toEqual([
        [200, `GET ${path}`],
        [200, ''],
        [304, ''],
        [204, ''],
        [200, 'a file'],
      ]);
    };
    await Promise.all(Array.from({ length: 20 }, (_, number) => client(number)));
  });
});
