import { setImmediate as nextTurn } from 'node:timers/promises';
import { CelScalar, celEnv, celFunc } from '@bufbuild/cel';
import { describe, expect, it } from 'vitest';
import { Budget } from '../../src/traffic-policy/cel/budget.ts';
import { compileExpression } from '../../src/traffic-policy/cel/expression.ts';
import { metered, PRICES } from '../../src/traffic-policy/cel/metered-environment.ts';
import { standalonePorts } from '../../src/traffic-policy/ports.ts';
import { DECLARATIONS } from '../../src/traffic-policy/scope/policy-variables.ts';
import { SubjectScope } from '../../src/traffic-policy/scope/subject-scope.ts';
import { checkPolicy } from '../support/check-policy.ts';
import { SteeredClock } from '../support/steered-clock.ts';
import { connectionFrom, ENDPOINT, requestFor } from './fake-request.ts';

const DAYS = 5 * 24 * 3_600_000;

/** @param now the clock of the evaluation */
function evaluate(text: string, now: () => number = () => DAYS) {
  const ports = { ...standalonePorts(), clock: { ...new SteeredClock(), now } as SteeredClock };
  const scope = new SubjectScope(ports, connectionFrom(), ENDPOINT, requestFor({ target: `/${'x'.repeat(8000)}` }));
  scope.begin(null);
  scope.setVariable('list', Array(2000).fill('element'));
  scope.setVariable('nested', Array(100).fill(Array(20).fill('element')));
  return () => compileExpression(text, DECLARATIONS.on_http_request).evaluate(scope);
}

const EXCEEDED = expect.objectContaining({ code: 'ERR_NGROK_2300' });

describe('computing time', () => {
  it.each([
    'vars.list.flatten()',
    'vars.nested.flatten()',
    'vars.list.reverse()',
    'vars.list.slice(0, 1)',
    'lists.range(2000)',
    'vars.list.sort()',
    'vars.list.distinct()',
    'vars.list == vars.list',
    'vars.nested != vars.nested',
    "'absent' in vars.list",
    'vars.list.join()',
    'vars.list.encodeJson()',
    "'%s'.format([vars.list])",
    "req.url.path.contains('absent')",
    "req.url.path.endsWith('absent')",
    'req.url.path < req.url.path',
    'bytes(req.url.path) + bytes(req.url.path)',
    'string(bytes(req.url.path))',
    'req.url.path.reverse()',
    'req.url.path.sha256()',
    'req.url.path.escapeUrl()',
    'req.url.uri',
    "vars.list.exists(y, y == 'element')",
  ])('is charged for every call of %s, so that a loop of them ends', (call) => {
    expect(evaluate(`[${call}].size() == 1`)()).toBe(true);
    expect(evaluate(`lists.range(2000).all(x, [${call}].size() == 1)`)).toThrow(EXCEEDED);
  });

  it('ends by the clock when work takes longer than it is charged for', () => {
    let ms = DAYS;
    const loop = 'lists.range(2000).all(x, x >= 0)';
    expect(evaluate(loop)()).toBe(true);
    expect(evaluate(loop, () => (ms += 3))).toThrow(EXCEEDED);
  });

  it('does not end by the clock when the process stood still once', () => {
    const times = [DAYS, DAYS + 60_000];
    expect(evaluate('lists.range(2000).all(x, x >= 0)', () => times.shift() ?? DAYS + 60_000)()).toBe(true);
  });

  it('does not include waits, for example for a body', async () => {
    const clock = new SteeredClock();
    const budget = new Budget(clock);
    for (let times = 0; times < 10; times++) {
      budget.spend(5000);
      clock.skip(60_000);
      await nextTurn();
    }
    expect(budget.isExhausted).toBe(false);
  });

  it('keeps the gateway from starting when a function has no price', () => {
    const free = celFunc('free', [], CelScalar.BOOL, () => true);
    expect(() => metered(celEnv({ funcs: [free] }), PRICES)).toThrow('the function free has no price');
    expect(() => metered(celEnv(), PRICES)).not.toThrow();
  });
});

it('the certificate of a connection is read once for all its requests', () => {
  let reads = 0;
  const tls = { sni: null, version: '1.3', cipherSuite: null, alpn: null, ja4: null, clientCertificate: null };
  const counted = {
    ...tls,
    get serverCertificate() {
      reads += 1;
      return null;
    },
  };
  const connection = connectionFrom('192.0.2.1', { tls: counted });
  const expression = compileExpression(
    'has(conn.tls.server.pem) || has(conn.tls.server.san)',
    DECLARATIONS.on_http_request,
  );
  for (let times = 0; times < 5; times++) {
    const scope = new SubjectScope(standalonePorts(), connection, ENDPOINT, requestFor());
    expect(expression.evaluate(scope)).toBe(false);
  }
  expect(reads).toBe(1);
});

it('an expression with thousands of operators in a row is rejected', () => {
  const text = JSON.stringify({
    on_http_request: [{ expressions: [`1${'+1'.repeat(2000)} > 0`], actions: [{ type: 'deny' }] }],
  });
  expect(checkPolicy(text, ['https'])).toMatchObject([{ code: 'ERR_NGROK_2200' }]);
});
