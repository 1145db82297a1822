import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import Libsql from 'libsql';
import { describe, expect, it } from 'vitest';
import { FailedAttempts } from '../../../src/gateway/api/authentication.ts';
import { type Clock, systemClock } from '../../../src/lib/time/clock.ts';
import { startManagementServer } from '../../support/management-server.ts';

/** A clock that only the test advances, and that records all sleeps. */
function steeredClock() {
  const slept: number[] = [];
  let now = 0;
  const clock: Clock = {
    ...systemClock,
    now: () => now,
    sleep: async (ms) => {
      slept.push(ms);
      await delay(0);
    },
    random: () => 0.5,
  };
  return {
    clock,
    slept,
    advance: (ms: number) => {
      now += ms;
    },
  };
}

describe('the rate limit', () => {
  it('answers 429 with Retry-After, separately for each API key', async () => {
    const { clock, advance } = steeredClock();
    const settings = { rateLimit: { requests: 3, windowMs: 60_000 } };
    const server = await startManagementServer({ settings, clock });
    for (let i = 0; i < 3; i += 1) expect((await server.call('GET', '/bot_users')).status).toBe(200);
    const refused = await server.call('GET', '/bot_users');
    expect([refused.status, refused.body.error_code]).toEqual([429, 'ERR_NGROK_226']);
    expect(refused.headers.get('Retry-After')).toBe('20');
    advance(20_000);
    const other = await server.call('POST', '/api_keys');
    expect(other.status).toBe(201);
    const headers = { Authorization: `Bearer ${other.body.token}` };
    expect((await server.call('GET', '/bot_users')).status).toBe(429);
    expect((await server.call('GET', '/bot_users', undefined, headers)).status).toBe(200);
    await server.close();
  });
});

describe('failed authentications', () => {
  it('are delayed with doubling delays; valid keys never are', async () => {
    const { clock, slept, advance } = steeredClock();
    const failedAttempts = { free: 2, windowMs: 60_000, delayMs: 100, maxDelayMs: 300 };
    const server = await startManagementServer({ settings: { failedAttempts }, clock });
    const fail = () => server.call('GET', '/bot_users', undefined, { Authorization: 'Bearer a_b' });
    for (let i = 0; i < 5; i += 1) expect((await fail()).status).toBe(403);
    expect(slept).toEqual([100, 200, 300]);
    expect((await server.call('GET', '/bot_users')).status).toBe(200);
    expect(slept).toHaveLength(3);
    advance(60_000);
    await fail();
    expect(slept).toHaveLength(3);
    await server.close();
  });

  it('from one IPv6 network count as one client', async () => {
    const { clock, slept } = steeredClock();
    const attempts = new FailedAttempts({ free: 2, windowMs: 60_000, delayMs: 100, maxDelayMs: 300 }, clock);
    for (const last of ['1', '2', '3:4:5:6']) await attempts.slowDown(`2001:db8::${last}`);
    await attempts.slowDown('2001:db8:0:100::1');
    expect(slept).toEqual([100]);
  });

  it('answer 429 when too many responses are delayed', async () => {
    const waiting: (() => void)[] = [];
    const sleep = () => new Promise<void>((wake) => waiting.push(wake));
    const clock: Clock = { ...systemClock, now: () => 0, sleep, random: () => 0 };
    const failedAttempts = { free: 0, windowMs: 60_000, delayMs: 100, maxDelayMs: 300 };
    const server = await startManagementServer({ settings: { failedAttempts }, clock });
    const fail = () => server.call('GET', '/bot_users', undefined, { Authorization: 'Bearer a_b' });
    const held = Array.from({ length: 64 }, fail);
    await expect.poll(() => waiting.length).toBe(64);
    const refused = await fail();
    expect([refused.status, refused.headers.get('Retry-After')]).toEqual([429, '1']);
    for (const wake of waiting) wake();
    expect((await Promise.all(held)).every(({ status }) => status === 403)).toBe(true);
    await server.close();
  });
});

describe('a database that another program has locked', () => {
  it('answers 503 with Retry-After to changes, while reads continue', async () => {
    const server = await startManagementServer();
    const other = new Libsql(join(server.folder, 'gateway.db'));
    other.exec('BEGIN IMMEDIATE');
    const change = server.call('POST', '/bot_users', { name: 'late' });
    expect((await server.call('GET', '/bot_users')).status).toBe(200);
    const refused = await change;
    expect([refused.status, refused.headers.get('Retry-After')]).toEqual([503, '1']);
    other.exec('ROLLBACK');
    other.close();
    expect((await server.call('GET', '/bot_users')).body.bot_users).toEqual([]);
    expect((await server.call('POST', '/bot_users')).status).toBe(201);
    await server.close();
  });
});
