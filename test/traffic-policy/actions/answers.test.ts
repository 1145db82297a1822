import { describe, expect, it } from 'vitest';
import { compilePolicy } from '../../../src/traffic-policy/engine.ts';
import type { PolicyAnswer } from '../../../src/traffic-policy/steps.ts';
import { connectionFrom, ENDPOINT, responseOf } from '../fake-request.ts';
import {
  bodyOf,
  headerIn,
  onConnect,
  onRequest,
  onResponse,
  respondWith,
  runRequest,
  runResponse,
  statusOf,
} from './run-action.ts';

describe('custom-response and deny', () => {
  it.each([
    ['<!doctype html><p>x', 'text/html; charset=utf-8'],
    ['{"a": 1}', 'application/json'],
    ['[not json', 'text/plain; charset=utf-8'],
  ])('custom-response detects the media type of %s', async (body, type) => {
    const { outcome } = await runRequest(onRequest({ type: 'custom-response', config: { body } }));
    expect(headerIn((outcome as PolicyAnswer).headers, 'content-type')).toBe(type);
  });

  it('custom-response sends status, headers and a body with evaluated expressions', async () => {
    const config = {
      status_code: 418,
      body: `hello \${req.url.path}`,
      headers: { 'content-type': 'text/x', 'x-m': `\${req.method}` },
    };
    const { outcome } = await runRequest(onRequest({ type: 'custom-response', config }), { target: '/tea' });
    expect(outcome).toMatchObject({ status: 418, headers: ['content-type', 'text/x', 'x-m', 'GET'], refused: false });
    expect(bodyOf(outcome)).toBe('hello /tea');
  });

  it.each([204, 205, 304])('custom-response sends %i without a body', async (status_code) => {
    const config = { status_code, body: 'none', headers: { 'x-a': '1' } };
    const { outcome } = await runRequest(onRequest({ type: 'custom-response', config }));
    expect(outcome).toMatchObject({ status: status_code, headers: ['x-a', '1'], body: Buffer.alloc(0) });
  });

  it('custom-response replaces responses', () => {
    const text = onResponse({ type: 'custom-response', config: { status_code: 503, body: `was \${res.status_code}` } });
    const { outcome } = runResponse(text, responseOf(500));
    expect(outcome).toMatchObject({ kind: 'answer', status: 503 });
    expect((outcome as PolicyAnswer).body.toString()).toBe('was 500');
  });

  it('custom-response writes bytes as text', async () => {
    expect(bodyOf((await runRequest(onRequest(respondWith("base64.decode('aMOp')")))).outcome)).toBe('hé');
    expect(statusOf((await runRequest(onRequest(respondWith("base64.decode('/w==')")))).outcome)).toBe(500);
  });

  it('custom-response fails with 500 when an expression has no value', async () => {
    const { outcome } = await runRequest(onRequest(respondWith("req.headers['x-absent'][0]")));
    expect(outcome).toMatchObject({ kind: 'error', status: 500, code: 'ERR_NGROK_3900' });
  });

  it('custom-response accepts the names of the legacy shape', async () => {
    const action = { Type: 'custom-response', Config: { status_code: 400, content: 'no', content_type: 'text/y' } };
    const text = JSON.stringify({
      Inbound: [{ Name: 'n', Expressions: ["req.Method == 'GET'"], Actions: [action] }],
      Outbound: [],
    });
    const { outcome } = await runRequest(text);
    expect(outcome).toMatchObject({ status: 400, headers: ['content-type', 'text/y'] });
  });

  it('deny sends 403 by default, as a rejection without a response phase', async () => {
    const { outcome } = await runRequest(onRequest({ type: 'deny' }));
    expect(outcome).toMatchObject({ kind: 'answer', status: 403, refused: true });
  });

  it('deny rejects a request with a status and closes a connection', async () => {
    expect(statusOf((await runRequest(onRequest({ type: 'deny', config: { status_code: 404 } }))).outcome)).toBe(404);
    const onTcpConnect = compilePolicy(onConnect({ type: 'deny' }), 'tcp').onTcpConnect;
    expect(onTcpConnect?.({ connection: connectionFrom(), endpoint: ENDPOINT })).toEqual({ kind: 'close' });
  });

  it('close-connection closes the connection in both phases', async () => {
    expect(statusOf((await runRequest(onRequest({ type: 'close-connection' }))).outcome)).toBe('close');
  });
});
