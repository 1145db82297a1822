import { expect, it } from 'vitest';
import { compilePolicy } from '../../src/traffic-policy/engine.ts';
import { RuleRecord } from '../../src/traffic-policy/rule-record.ts';
import type { ForwardFailure } from '../../src/traffic-policy/steps.ts';
import { connectionFrom, ENDPOINT, requestFor, responseOf } from './fake-request.ts';

const addHeader = { type: 'add-headers', config: { headers: { 'x-a': 'b' } } };
const FAILURE: ForwardFailure = { code: 'ERR_NGROK_3200', message: 'offline' };

const compiled = (policy: object) => compilePolicy(JSON.stringify(policy), 'https');

/** Each rule on one line. */
const linesOf = (record: RuleRecord) =>
  record.acted.map(({ place, name, actions, outcome: { kind, ...more } }) =>
    [place, ...(name === null ? [] : [name]), actions.join('+'), kind, ...Object.values(more)].join(' '),
  );

it('a record has the rules that acted in each phase, with the actions that ran and what they decided', async () => {
  const policy = compiled({
    on_tcp_connect: [{ actions: [{ type: 'set-vars', config: { vars: [{ who: 'me' }] } }] }],
    on_http_request: [
      { name: 'always', actions: [addHeader, addHeader] },
      { expressions: ["req.url.path == '/other'"], actions: [{ type: 'deny' }] },
      { expressions: ["req.url.path == '/'"], actions: [addHeader] },
    ],
    on_http_response: [
      {
        expressions: ['res.status_code == 500'],
        actions: [addHeader, { type: 'custom-response', config: { status_code: 503, body: 'later' } }],
      },
    ],
  });
  const record = new RuleRecord();
  expect(policy.onTcpConnect?.({ connection: connectionFrom(), endpoint: ENDPOINT, record })).toBeUndefined();
  const request = { ...requestFor(), record };
  expect(await policy.onHttpRequest?.(request)).toBeUndefined();
  expect(policy.onHttpResponse?.(request, responseOf(500))).toMatchObject({ status: 503 });
  expect(linesOf(record)).toEqual([
    'on_tcp_connect[0] set-vars continue',
    'on_http_request[0] always add-headers+add-headers continue',
    'on_http_request[2] add-headers continue',
    'on_http_response[0] add-headers+custom-response answer 503',
  ]);
});

it.each([
  ['deny', { type: 'deny', config: { status_code: 418 } }, 'deny answer 418'],
  ['close-connection', { type: 'close-connection' }, 'close-connection close'],
  ['redirect', { type: 'redirect', config: { from: '.*', to: 'https://a.example' } }, 'redirect answer 302'],
  [
    'basic-auth',
    { type: 'basic-auth', config: { credentials: ['user:password1'] } },
    'basic-auth error 401 ERR_NGROK_3401',
  ],
])('the action %s ends the record, and the next rule is not in it', async (_, action, line) => {
  const record = new RuleRecord();
  await compiled({ on_http_request: [{ actions: [action] }, { actions: [addHeader] }] }).onHttpRequest?.({
    ...requestFor({ target: '/a' }),
    record,
  });
  expect(linesOf(record)).toEqual([`on_http_request[0] ${line}`]);
});

it('an action that reads the body, and then rejects the request, is in the record', async () => {
  const webhook = { type: 'verify-webhook', config: { provider: 'github', secret: 'abc' } };
  const record = new RuleRecord();
  const outcome = await compiled({ on_http_request: [{ actions: [webhook] }] }).onHttpRequest?.({
    ...requestFor({ method: 'POST', body: '{}' }),
    record,
  });
  expect(outcome).toBeDefined();
  expect(linesOf(record)).toEqual([
    expect.stringMatching(/^on_http_request\[0\] verify-webhook (?:answer|error) 4\d\d/),
  ]);
});

it('a rule that forwards is in the record, and those after it when it could not be forwarded', async () => {
  const forward = { type: 'forward-internal', config: { url: 'https://a.internal', on_error: 'continue' } };
  const record = new RuleRecord();
  const outcome = await compiled({
    on_http_request: [{ expressions: ['true'], actions: [forward] }, { actions: [{ type: 'deny' }] }],
  }).onHttpRequest?.({ ...requestFor(), record });
  if (outcome?.kind !== 'forward') throw new Error('not forwarded');
  expect(linesOf(record)).toEqual(['on_http_request[0] forward-internal forward https://a.internal']);
  await outcome.resume?.(FAILURE);
  expect(linesOf(record)).toEqual([
    'on_http_request[0] forward-internal forward https://a.internal',
    'on_http_request[1] deny answer 403',
  ]);
});
