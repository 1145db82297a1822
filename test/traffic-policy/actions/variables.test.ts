import { describe, expect, it } from 'vitest';
import { compilePolicy } from '../../../src/traffic-policy/engine.ts';
import type { PolicyLogEntry } from '../../../src/traffic-policy/ports.ts';
import type { PolicyAnswer } from '../../../src/traffic-policy/steps.ts';
import { requestFor, responseOf } from '../fake-request.ts';
import { bodyOf, onRequest, respondWith, runRequest } from './run-action.ts';

describe('set-vars and log', () => {
  it('keep the types of values, read earlier entries and end with the phase', async () => {
    const vars = [{ a: `\${[1, 2]}` }, { b: `\${vars.a[1] + 1}` }, { c: { deep: [`x\${vars.b}`] } }, { a: 'again' }];
    const text = JSON.stringify({
      on_http_request: [
        { actions: [{ type: 'set-vars', config: { vars } }] },
        { actions: [respondWith('json.encode(vars)')] },
      ],
      on_http_response: [{ actions: [respondWith('has(vars.a)')] }],
    });
    const policy = compilePolicy(text, 'https');
    const request = requestFor();
    const outcome = await policy.onHttpRequest?.(request);
    expect(JSON.parse(bodyOf(outcome))).toEqual({ a: 'again', b: 3, c: { deep: ['x3'] } });
    const replaced = policy.onHttpResponse?.(request, responseOf());
    expect((replaced as PolicyAnswer).body.toString()).toBe('false');
  });

  it('reject values that are too large', async () => {
    const doubling = Array.from({ length: 45 }, () => ({ a: `\${vars.a + vars.a}` }));
    const text = onRequest({ type: 'set-vars', config: { vars: [{ a: 'xxxxxxxx' }, ...doubling] } });
    expect((await runRequest(text)).outcome).toMatchObject({ status: 500 });
    const nesting = Array.from({ length: 45 }, () => ({ a: `\${[vars.a, vars.a]}` }));
    const nested = onRequest({ type: 'set-vars', config: { vars: [{ a: 'x' }, ...nesting] } });
    expect((await runRequest(nested)).outcome).toMatchObject({ status: 500, code: 'ERR_NGROK_2249' });
  });

  it.each<[string, string]>([
    ['texts that are not ASCII', `\${req.url.query.replace('a', 'éé€')}`],
    ['lists in lists', `\${json.decode('[' + req.url.query.replace('a', '[],') + '[]]')}`],
    ['maps', `\${json.decode('[' + req.url.query.replace('a', '{"k":{}},') + '[]]')}`],
  ])('reject %s that take too much memory, whatever their length', async (_, value) => {
    const vars = Array.from({ length: 30 }, (_, at) => ({ [`v${at}`]: value }));
    const text = onRequest({ type: 'set-vars', config: { vars } });
    const target = `/?${'a'.repeat(1000)}`;
    expect((await runRequest(text, { target })).outcome).toMatchObject({ status: 500, code: 'ERR_NGROK_2249' });
    const one = onRequest({ type: 'set-vars', config: { vars: vars.slice(0, 1) } });
    expect((await runRequest(one, { target: '/?aaa' })).outcome).toBeUndefined();
  });

  it('keep names of headers that are found in any case', async () => {
    const vars = [{ all: `\${req.headers}` }, { copy: `\${[vars.all]}` }];
    const text = onRequest(
      { type: 'set-vars', config: { vars } },
      respondWith("[vars.copy[0]['X-KEY'][0], vars.all['x-key'][0]]"),
    );
    const { outcome } = await runRequest(text, { headers: ['X-Key', 'found'] });
    expect(JSON.parse(bodyOf(outcome))).toEqual(['found', 'found']);
  });

  it('log the evaluated metadata', async () => {
    const entries: PolicyLogEntry[] = [];
    const text = onRequest({
      type: 'log',
      config: { metadata: { who: `\${conn.client_ip}`, n: `\${1 + 1}`, fixed: true } },
    });
    await runRequest(text, {}, { onLog: (entry) => entries.push(entry) });
    expect(entries).toEqual([
      {
        endpointId: 'ep_1',
        clientIp: '203.0.113.7',
        place: 'on_http_request[0].actions[0]',
        metadata: { who: '203.0.113.7', n: 2, fixed: true },
      },
    ]);
  });
});
