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
