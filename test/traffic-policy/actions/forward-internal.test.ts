import { describe, expect, it } from 'vitest';
import { compilePolicy } from '../../../src/traffic-policy/engine.ts';
import { connectionFrom, ENDPOINT } from '../fake-request.ts';
import { bodyOf, onConnect, onRequest, respondWith, runRequest } from './run-action.ts';

describe('forward-internal', () => {
  it('returns a forward outcome without a continuation when on_error is halt', async () => {
    const text = onRequest({ type: 'forward-internal', config: { url: 'https://a.internal', binding: 'internal' } });
    const { outcome } = await runRequest(text);
    expect(outcome).toEqual({ kind: 'forward', url: 'https://a.internal', resume: null });
  });

  it('continues with the rest of the phase when forwarding fails and on_error is continue', async () => {
    const text = JSON.stringify({
      on_http_request: [
        {
          expressions: ['true'],
          actions: [
            {
              type: 'forward-internal',
              config: { url: `https://\${req.method.lower()}.internal`, on_error: 'continue' },
            },
          ],
        },
        {
          actions: [
            respondWith("actions.ngrok.forward_internal.url + ' ' + actions.ngrok.forward_internal.error.code"),
          ],
        },
      ],
    });
    const { outcome } = await runRequest(text);
    if (outcome?.kind !== 'forward') throw new Error('a forward was expected');
    const next = await outcome.resume?.({ code: 'ERR_NGROK_3200', message: 'offline' });
    expect(bodyOf(next)).toBe('https://get.internal ERR_NGROK_3200');
  });

  it('forwards connections', () => {
    const text = onConnect(
      { type: 'forward-internal', config: { url: 'tcp://a.internal:22', on_error: 'continue' } },
      { type: 'deny' },
    );
    const outcome = compilePolicy(text, 'tcp').onTcpConnect?.({ connection: connectionFrom(), endpoint: ENDPOINT });
    if (outcome?.kind !== 'forward') throw new Error('a forward was expected');
    expect(outcome.resume?.({ code: 'ERR_NGROK_3200', message: '' })).toEqual({ kind: 'close' });
  });
});
