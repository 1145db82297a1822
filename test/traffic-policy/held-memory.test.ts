import { expect, it } from 'vitest';
import { MemoryBudget } from '../../src/lib/memory-budget.ts';
import { compilePolicy } from '../../src/traffic-policy/engine.ts';
import type { PolicyRequest } from '../../src/traffic-policy/policy-subjects.ts';
import { SteeredClock } from '../support/steered-clock.ts';
import { requestFor, responseOf } from './fake-request.ts';

const MIB = 1_048_576;

const webhook = { type: 'verify-webhook', config: { provider: 'github', secret: 'x', enforce: false } };
const forward = { type: 'forward-internal', config: { url: 'https://a.internal', on_error: 'continue' } };
const setting = (value: string) => ({ type: 'set-vars', config: { vars: [{ text: `\${${value}}` }] } });
const adding = (value: string) => ({ type: 'add-headers', config: { headers: { 'x-a': `\${${value}}` } } });
const answering = (value: string) => ({ type: 'custom-response', config: { body: `\${${value}}` } });
const QUERY = 'req.url.query';
const LONG = 12_000;

/** A request whose body arrives, and whose response ends, when the test says so. */
function waiting(query = 'a'.repeat(LONG)) {
  let arrive = () => {};
  let end = () => {};
  const request: PolicyRequest = {
    ...requestFor({ target: `/?${query}`, headers: ['X-Hub-Signature-256', 'sha256=00'] }),
    readBody: () =>
      new Promise((resolve) => {
        arrive = () => resolve(Buffer.alloc(0));
      }),
    onEnd: (callback) => {
      end = callback;
    },
  };
  return { request, arrive: () => arrive(), end: () => end() };
}

function compiled(policy: object, memory: MemoryBudget) {
  return compilePolicy(JSON.stringify(policy), 'https', {
    // A busy machine must not use up the policy's computing time.
    ports: { valueMemory: memory, clock: new SteeredClock() },
  });
}

it('counts variables while a request waits, until the phase has ended', async () => {
  const memory = new MemoryBudget(MIB);
  const policy = compiled({ on_http_request: [{ actions: [setting(QUERY), webhook] }] }, memory);
  const { request, arrive } = waiting();
  const outcome = policy.onHttpRequest?.(request);
  expect(memory.reserved).toBeGreaterThanOrEqual(LONG);
  expect(memory.reserved).toBeLessThan(1.5 * LONG);
  arrive();
  expect(await outcome).toBeUndefined();
  expect(memory.reserved).toBe(0);
});

it('counts variables of a policy that still runs when the client has left', async () => {
  const memory = new MemoryBudget(MIB);
  const policy = compiled({ on_http_request: [{ actions: [setting(QUERY), webhook] }] }, memory);
  const { request, arrive, end } = waiting();
  const outcome = policy.onHttpRequest?.(request);
  end();
  expect(memory.reserved).toBeGreaterThanOrEqual(LONG);
  arrive();
  await outcome;
  expect(memory.reserved).toBe(0);
});

it('counts variables that the rest of the phase needs when a forward fails, until the response ends', async () => {
  const memory = new MemoryBudget(MIB);
  const policy = compiled(
    { on_http_request: [{ actions: [setting(QUERY), forward] }, { actions: [answering('size(vars.text)')] }] },
    memory,
  );
  const { request, end } = waiting();
  const outcome = await policy.onHttpRequest?.(request);
  expect(memory.reserved).toBeGreaterThanOrEqual(LONG);
  const resumed = outcome?.kind === 'forward' ? await outcome.resume?.({ code: 'x', message: 'x' }) : undefined;
  expect(resumed).toMatchObject({ body: Buffer.from(String(LONG)) });
  end();
  expect(memory.reserved).toBe(0);
});

it.each([
  ['headers that it adds to requests', { on_http_request: [{ actions: [adding(QUERY)] }] }],
  ['headers that it adds to responses', { on_http_response: [{ actions: [adding(QUERY)] }] }],
  [
    'URLs that it rewrites',
    { on_http_request: [{ actions: [{ type: 'url-rewrite', config: { from: '$', to: 'b' } }] }] },
  ],
  ['answers', { on_http_request: [{ actions: [answering(QUERY)] }] }],
  [
    'results that expressions read',
    {
      on_http_request: [{ actions: [{ type: 'log', config: { metadata: { a: `\${${QUERY}}` } } }] }],
      on_http_response: [{ expressions: ["actions.ngrok.log.metadata.a == ''"], actions: [answering('1')] }],
    },
  ],
])('counts %s until the response has ended', async (_, policy) => {
  const memory = new MemoryBudget(MIB);
  const { onHttpRequest, onHttpResponse } = compiled(policy, memory);
  const { request, end } = waiting();
  await onHttpRequest?.(request);
  await onHttpResponse?.(request, responseOf());
  expect(memory.reserved).toBeGreaterThanOrEqual(LONG);
  end();
  expect(memory.reserved).toBe(0);
});

it('fails for requests when no room is left for others, and admits them again afterwards', async () => {
  const memory = new MemoryBudget(MIB);
  const policy = compiled({ on_http_request: [{ actions: [setting(QUERY), webhook] }] }, memory.shareOf('hostile'));
  const other = compiled({ on_http_request: [{ actions: [setting(QUERY), webhook] }] }, memory.shareOf('honest'));
  const all: ReturnType<typeof waiting>[] = [];
  const outcomes: unknown[] = [];
  for (let next = waiting(); ; next = waiting()) {
    const outcome = policy.onHttpRequest?.(next.request);
    if (!(outcome instanceof Promise)) {
      expect(outcome).toMatchObject({ kind: 'error', status: 500, code: 'ERR_NGROK_5001' });
      break;
    }
    all.push(next);
    outcomes.push(outcome);
  }
  expect(memory.reserved).toBeLessThanOrEqual(MIB / 2);
  const { request, arrive } = waiting();
  const admitted = other.onHttpRequest?.(request);
  expect(admitted).toBeInstanceOf(Promise);
  for (const each of [...all, { arrive }]) each.arrive();
  await Promise.all([...outcomes, admitted]);
  expect(memory.reserved).toBe(0);
});

it('fails when one request makes too much', () => {
  const headers = Object.fromEntries(Array.from({ length: 10 }, (_, at) => [`x-${at}`, `\${${QUERY}}`]));
  const adds = { type: 'add-headers', config: { headers } };
  const policy = compiled(
    { on_http_request: [{ actions: Array(10).fill(adds) }] },
    new MemoryBudget(Number.POSITIVE_INFINITY),
  );
  expect(policy.onHttpRequest?.(waiting().request)).toMatchObject({ status: 500, code: 'ERR_NGROK_5001' });
});

it('reserves nothing for the little that most policies hold', () => {
  const memory = new MemoryBudget(MIB);
  const policy = compiled({ on_http_request: [{ actions: [setting(QUERY), adding(QUERY)] }] }, memory);
  policy.onHttpRequest?.(waiting('short').request);
  expect(memory.reserved).toBe(0);
});
