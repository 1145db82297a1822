import { describe, expect, it } from 'vitest';
import { responseOf } from '../fake-request.ts';
import { bodyOf, onRequest, onResponse, respondWith, runRequest, runResponse, statusOf } from './run-action.ts';

describe('add-headers and remove-headers', () => {
  it('append headers, replace host, remove headers and record the result', async () => {
    const text = onRequest(
      {
        type: 'add-headers',
        config: { headers: { 'X-A': `\${req.method}-\${conn.client_ip}`, 'x-n': 5, host: 'inner.local' } },
      },
      { type: 'remove-headers', config: { headers: ['COOKIE', 'x-none'] } },
      respondWith(
        'string(actions.ngrok.add_headers.headers_added) + string(actions.ngrok.remove_headers.headers_removed)',
      ),
    );
    const { request, outcome } = await runRequest(
      text.replace('string(', 'json.encode(').replace('string(', 'json.encode('),
      {
        headers: ['Cookie', 'a=1', 'X-B', 'kept'],
      },
    );
    expect(request.headers).toEqual(['Host', 'inner.local', 'X-B', 'kept', 'x-a', 'GET-203.0.113.7', 'x-n', '5']);
    expect(bodyOf(outcome)).toBe('{"x-a":"GET-203.0.113.7","x-n":"5","host":"inner.local"}["cookie"]');
  });

  it('remove headers that upstreams could take for the named one: with underscores', async () => {
    const lookalikes = [
      'X_User',
      'a',
      'x_User-id',
      'b',
      'X-User_ID',
      'c',
      'x_other',
      'kept',
      'X-User',
      'd',
      'x-user-id',
      'e',
    ];
    const add = onRequest({ type: 'add-headers', config: { headers: { 'X-User': '1', x_user_id: '2' } } });
    const added = (await runRequest(add, { headers: [...lookalikes] })).request.headers.slice(2);
    expect(added).toEqual(['x_other', 'kept', 'X-User', 'd', 'x-user-id', 'e', 'x-user', '1', 'x_user_id', '2']);
    const remove = onRequest({ type: 'remove-headers', config: { headers: ['X-User', 'x-user-id'] } });
    const left = (await runRequest(remove, { headers: [...lookalikes] })).request.headers.slice(2);
    expect(left).toEqual(['x_other', 'kept']);
  });

  it('take effect for later rules', async () => {
    const text = JSON.stringify({
      on_http_request: [
        {
          expressions: ["!hasReqHeader('x-a')"],
          actions: [{ type: 'add-headers', config: { headers: { 'x-a': '1' } } }],
        },
        { expressions: ["req.headers['x-a'][0] == '1'"], actions: [{ type: 'deny' }] },
      ],
    });
    expect(statusOf((await runRequest(text)).outcome)).toBe(403);
  });

  it('work on responses', () => {
    const text = onResponse(
      { type: 'remove-headers', config: { headers: ['server'] } },
      { type: 'add-headers', config: { headers: { 'x-status': `\${res.status_code}` } } },
    );
    expect(runResponse(text, responseOf(201, ['Server', 'x'])).response.headers).toEqual(['x-status', '201']);
  });

  it('reject values that would end the header', async () => {
    const text = onRequest({ type: 'add-headers', config: { headers: { 'x-a': `\${req.url.query_params['q'][0]}` } } });
    const { request, outcome } = await runRequest(text, { target: '/?q=a%0d%0aset-cookie:%20x' });
    expect(outcome).toMatchObject({ kind: 'error', status: 500, code: 'ERR_NGROK_3900' });
    expect(request.headers).toEqual(['Host', 'cam.example.com']);
  });
});
