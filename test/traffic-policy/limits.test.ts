import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { MemoryBudget } from '../../src/lib/memory-budget.ts';
import { type CompiledPolicy, compilePolicy } from '../../src/traffic-policy/engine.ts';
import type { PolicyRequest } from '../../src/traffic-policy/policy-subjects.ts';
import { Circuit } from '../../src/traffic-policy/state/circuit.ts';
import { PolicyState, PolicyStates } from '../../src/traffic-policy/state/policy-state.ts';
import { SlidingWindow } from '../../src/traffic-policy/state/sliding-window.ts';
import { SteeredClock } from '../support/steered-clock.ts';
import { connectionFrom, requestFor } from './fake-request.ts';

const LIMIT = {
  name: 'per client',
  algorithm: 'sliding_window',
  capacity: 5,
  rate: '60s',
  bucket_key: ['conn.client_ip'],
};

function setUp(action: { type: string; config: object }) {
  const clock = new SteeredClock();
  const state = new PolicyState();
  const compile = (config: object = {}) => {
    const text = JSON.stringify({
      on_http_request: [{ actions: [{ type: action.type, config: { ...action.config, ...config } }] }],
    });
    return compilePolicy(text, 'https', { ports: { clock, state } });
  };
  return { clock, compile };
}

function ask(policy: CompiledPolicy, clientIp = '203.0.113.7', headers: string[] = []) {
  const request = requestFor({ connection: connectionFrom(clientIp), headers });
  const outcome = policy.onHttpRequest?.(request);
  if (outcome instanceof Promise || outcome?.kind === 'close' || outcome?.kind === 'forward')
    throw new Error('not expected');
  return { request, status: outcome?.status ?? 200, headers: outcome?.headers ?? [] };
}

describe('rate-limit', () => {
  it('admits exactly its capacity per client, and sends Retry-After', () => {
    const { clock, compile } = setUp({ type: 'rate-limit', config: LIMIT });
    const policy = compile();
    const statuses = Array.from({ length: 8 }, () => ask(policy).status);
    expect(statuses).toEqual([200, 200, 200, 200, 200, 429, 429, 429]);
    expect(ask(policy, '192.0.2.1').status).toBe(200);
    const [name, seconds] = ask(policy).headers;
    expect(name).toBe('retry-after');
    clock.skip(Number(seconds) * 1000 - 1000);
    expect(ask(policy).status).toBe(429);
    clock.skip(1000);
    expect(ask(policy).status).toBe(200);
  });

  it('stays exact with many concurrent requests', async () => {
    const { compile } = setUp({ type: 'rate-limit', config: { ...LIMIT, capacity: 100 } });
    const policy = compile();
    const statuses = await Promise.all(
      Array.from({ length: 1000 }, async (_, at) => {
        for (let turns = at % 7; turns > 0; turns--) await null;
        return ask(policy).status;
      }),
    );
    expect(statuses.filter((status) => status === 200)).toHaveLength(100);
  });

  it('keeps its counters when the policy is compiled again, unless its parameters change', () => {
    const { compile } = setUp({ type: 'rate-limit', config: LIMIT });
    const first = compile();
    for (let times = 0; times < 5; times++) ask(first);
    expect(ask(compile()).status).toBe(429);
    expect(ask(compile({ capacity: 6 })).status).toBe(200);
    expect(ask(compile({ name: 'another' })).status).toBe(200);
  });

  it('only counts without enforcement', () => {
    const { compile } = setUp({ type: 'rate-limit', config: { ...LIMIT, enforce: false } });
    const policy = compile();
    expect(Array.from({ length: 8 }, () => ask(policy).status)).toEqual(Array(8).fill(200));
  });

  it('counts all requests without the header of the key as one client', () => {
    const { compile } = setUp({
      type: 'rate-limit',
      config: { ...LIMIT, capacity: 1, bucket_key: ["req.headers['x-key']"] },
    });
    const policy = compile();
    expect(ask(policy, '192.0.2.1').status).toBe(200);
    expect(ask(policy, '192.0.2.2').status).toBe(429);
    expect(ask(policy, '192.0.2.2', ['X-Key', 'a']).status).toBe(200);
    expect(ask(policy, '192.0.2.2', ['X-Key', 'a']).status).toBe(429);
  });

  it('tells long keys apart, and keys of several parts', () => {
    const { compile } = setUp({
      type: 'rate-limit',
      config: { ...LIMIT, capacity: 1, bucket_key: ['conn.client_ip', "getReqHeader('x-key')"] },
    });
    const policy = compile();
    const long = 'k'.repeat(500);
    for (const [ip, key] of [
      ['192.0.2.1', `${long}a`],
      ['192.0.2.1', `${long}b`],
      ['192.0.2.2', `${long}a`],
      ['192.0.2.1', 'k'],
    ] as const) {
      expect(ask(policy, ip, ['X-Key', key]).status).toBe(200);
      expect(ask(policy, ip, ['X-Key', key]).status).toBe(429);
    }
  });

  it('never admits more than its capacity in any window, and never rejects for longer than a window and a slot', () => {
    const gaps = fc.array(fc.integer({ min: 0, max: 20_000 }), { minLength: 1, maxLength: 200 });
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 20 }), gaps, (capacity, waits) => {
        const window = new SlidingWindow(capacity, 60_000);
        const admitted: number[] = [];
        let now = 123;
        for (const wait of waits) {
          now += wait;
          const { admitted: in_, retryAfterMs } = window.admit('key', now);
          const recent = (ms: number) => admitted.filter((time) => time > now - ms).length;
          if (in_) {
            expect(recent(60_000)).toBeLessThan(capacity);
            admitted.push(now);
          } else {
            expect(recent(62_000)).toBeGreaterThanOrEqual(capacity);
            expect(retryAfterMs).toBeGreaterThan(0);
            expect(retryAfterMs).toBeLessThanOrEqual(62_000);
          }
        }
      }),
    );
  });

  it('keeps a bounded number of keys, and drops keys that were idle for a window', () => {
    const window = new SlidingWindow(5, 60_000);
    for (let key = 0; key < 30_000; key++) window.admit(`key ${key}`, 0);
    expect(window.keys).toBe(10_000);
    for (let key = 0; key < 10_000; key++) window.admit('one', 120_000 + key);
    expect(window.keys).toBe(1);
  });

  it('keeps a bounded number of keys in all limits together, at the expense of the largest', () => {
    const room = new MemoryBudget(1000);
    const [small, ...large] = Array.from({ length: 5 }, () => new SlidingWindow(1, 60_000, room));
    for (let key = 0; key < 10; key++) small?.admit(`key ${key}`, 0);
    for (let key = 0; key < 5000; key++) for (const window of large) window.admit(`key ${key}`, 0);
    const kept = large.reduce((sum, { keys }) => sum + keys, 0);
    expect(kept).toBeGreaterThan(400);
    expect(kept).toBeLessThanOrEqual(1000);
    expect(small?.keys).toBe(10);
    // Idle keys are dropped first.
    for (let time = 0; time < 3000; time++) for (const window of large) window.admit('one', 120_000);
    for (let key = 0; key < 900; key++) large[0]?.admit(`key ${key}`, 120_000);
    expect(large[0]?.keys).toBe(901);
  });
});

describe('circuit-breaker', () => {
  const config = { error_threshold: 0.5, volume_threshold: 4, window_duration: '10s', tripped_duration: '5s' };
  const finish = (policy: CompiledPolicy, request: PolicyRequest, status: number | null) =>
    policy.onUpstreamDone?.(request, status);

  function failing(policy: CompiledPolicy, times: number, status: number | null = 500) {
    for (let time = 0; time < times; time++) finish(policy, ask(policy).request, status);
  }

  it('opens at its thresholds, and closes when a probe succeeds', () => {
    const { clock, compile } = setUp({ type: 'circuit-breaker', config });
    const policy = compile();
    failing(policy, 3);
    expect(ask(policy).status).toBe(200);
    failing(policy, 1, null);
    expect(ask(policy).status).toBe(503);
    clock.skip(5000);
    const probe = ask(policy);
    expect(probe.status).toBe(200);
    expect(ask(policy).status).toBe(503); // one probe at a time
    finish(policy, probe.request, 200);
    expect(ask(policy).status).toBe(200);
  });

  it('stays open when the probe fails, and sends another probe when one is lost', () => {
    const { clock, compile } = setUp({ type: 'circuit-breaker', config });
    const policy = compile();
    failing(policy, 4);
    clock.skip(5000);
    finish(policy, ask(policy).request, 502);
    clock.skip(4999);
    expect(ask(policy).status).toBe(503);
    clock.skip(1);
    expect(ask(policy).status).toBe(200); // its outcome is never recorded
    clock.skip(5000);
    expect(ask(policy).status).toBe(200);
  });

  it('ignores responses to requests from before it opened', () => {
    const { clock, compile } = setUp({ type: 'circuit-breaker', config });
    const policy = compile();
    const slow = ask(policy);
    failing(policy, 4);
    clock.skip(5000);
    ask(policy);
    finish(policy, slow.request, 200);
    expect(ask(policy).status).toBe(503);
  });

  it.each([
    ['at 0, with the first failure', 0, [200, 200, 200, 500]],
    ['at 0, also when the failure came first', 0, [500, 200, 200, 200]],
    ['above, whatever came last', 0.5, [500, 500, 500, 200]],
  ])('opens %s', (_, error_threshold, statuses) => {
    const policy = setUp({ type: 'circuit-breaker', config: { ...config, error_threshold } }).compile();
    for (const status of statuses) {
      expect(ask(policy).status).toBe(200);
      failing(policy, 1, status);
    }
    expect(ask(policy).status).toBe(503);
  });

  it('stays closed at a threshold of 0 while nothing fails', () => {
    const policy = setUp({ type: 'circuit-breaker', config: { ...config, error_threshold: 0 } }).compile();
    failing(policy, 20, 200);
    expect(ask(policy).status).toBe(200);
  });

  it('stays closed below its thresholds, and ignores requests from before its window', () => {
    const policy = setUp({ type: 'circuit-breaker', config }).compile();
    for (let time = 0; time < 10; time++) {
      failing(policy, 1, 200);
      failing(policy, 1, 200);
      failing(policy, 1, 500);
    }
    expect(ask(policy).status).toBe(200);
    const other = setUp({ type: 'circuit-breaker', config });
    const fresh = other.compile();
    for (let time = 0; time < 10; time++) {
      failing(fresh, 1);
      other.clock.skip(4000);
    }
    expect(ask(fresh).status).toBe(200);
  });

  it('does nothing without enforcement, and accepts its old names', () => {
    const { compile } = setUp({
      type: 'circuit-breaker',
      config: { error_threshold_percentage: 0.1, rolling_window: '20s', volume_threshold: 1 },
    });
    const open = compile();
    failing(open, 1);
    expect(ask(open).status).toBe(503);
    const off = compile({ enforce: false });
    failing(off, 20);
    expect(ask(off).status).toBe(200);
  });

  it('responds with the documented code', () => {
    const { compile } = setUp({ type: 'circuit-breaker', config });
    const policy = compile();
    failing(policy, 4);
    expect(policy.onHttpRequest?.(requestFor())).toMatchObject({ kind: 'error', status: 503, code: 'ERR_NGROK_3202' });
  });

  it('admits exactly one of many concurrent requests as a probe', () => {
    const circuit = new Circuit({ errorThreshold: 0.5, volumeThreshold: 1, windowMs: 10_000, trippedMs: 5000 });
    circuit.record(circuit.admit(0) ?? -1, true, 0);
    const admitted = Array.from({ length: 100 }, () => circuit.admit(6000)).filter((ticket) => ticket !== null);
    expect(admitted).toHaveLength(1);
  });
});

describe('PolicyState', () => {
  it('keeps a bounded number of entries', () => {
    const states = new PolicyStates();
    const first = states.of('https://one');
    expect(states.of('https://one')).toBe(first);
    for (let at = 0; at < 20_000; at++) states.of(`https://${at}`);
    expect(states.of('https://one')).not.toBe(first);
  });

  it('keeps a bounded number of entries when each endpoint has many', () => {
    const states = new PolicyStates();
    const keep = (url: string, at: number) => states.of(url).keep(Map, [at], () => new Map());
    const kept = keep('https://one', 0);
    expect(keep('https://one', 0)).toBe(kept);
    for (let url = 0; url < 500; url++) for (let at = 0; at < 256; at++) keep(`https://${url}`, at);
    expect(keep('https://499', 0)).toBe(keep('https://499', 0));
    expect(keep('https://one', 0)).not.toBe(kept);
  });
});
