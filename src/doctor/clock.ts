import { request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import { connectionFor } from '../lib/network/proxied-connection.ts';
import type { ProxyRules } from '../lib/network/proxy-rules.ts';
import { withDeadline } from '../lib/time/deadline.ts';
import { type Check, check, failed, ok, type Result, skipped } from './finding.ts';
import type { Reach } from './gateway-reach.ts';

/** Certificates and tokens tolerate this much skew. */
const TOLERATED_MS = 60_000;
/** Older than this program: a clock that shows an earlier time was never set. */
const NEVER_SET = Date.parse('2025-01-01T00:00:00Z');
const SET_IT = 'run sudo timedatectl set-ntp true; without a battery-backed clock, wait for the network at boot';
const ANSWER_MS = 4_000;

export interface ClockSources {
  /** The time of this machine's clock, in milliseconds since 1970. */
  now: () => number;
  /** Null: the gateway is the embedded one. */
  reach: Promise<Reach> | null;
  /** Milliseconds by which the clock is ahead of what the gateway has proved by then; null: it was not asked. */
  proved?: () => number | null;
  /** Origin of a server whose `Date` header gives the right time; null when unknown. */
  dateFrom: string | null;
  proxies: ProxyRules;
  patience: number;
}

/** Compares the clock with a server's `Date` header, or else with the validity of the gateway's certificate. */
export function clockCheck({ now, reach, proved = () => null, dateFrom, proxies, patience }: ClockSources): Check {
  return check('clock', 'Clock', async () => {
    const shown = new Date(now()).toISOString();
    await reach;
    const ahead = proved();
    if (ahead !== null) return judgeProved(ahead, shown);
    if (now() < NEVER_SET) return failed(`shows ${shown}: never set`, SET_IT);
    const [skew, found] = await Promise.all([
      dateFrom === null ? null : skewAgainst(dateFrom, now, proxies, ANSWER_MS * patience),
      reach,
    ]);
    if (skew !== null && dateFrom !== null) return judgeSkew(skew, dateFrom, shown);
    if (!found) return skipped(`shows ${shown}; no reference to compare with`);
    return judgeValidity(found, now(), shown);
  });
}

function judgeProved(ahead: number, shown: string): Result {
  const way = `${Math.round(Math.abs(ahead) / 1000)} s ${ahead > 0 ? 'ahead of' : 'behind'}`;
  return failed(`shows ${shown}: ${way} the time that the gateway proves; the agent uses that time for itself`, SET_IT);
}

function judgeSkew(skew: number, source: string, shown: string): Result {
  const seconds = Math.round(Math.abs(skew) / 1000);
  if (Math.abs(skew) <= TOLERATED_MS) return ok(`${shown}, within a minute of ${source}`);
  return failed(`shows ${shown}: ${seconds} s ${skew > 0 ? 'ahead of' : 'behind'} ${source}`, SET_IT);
}

function judgeValidity(reach: Reach, now: number, shown: string): Result {
  const certificate = 'presented' in reach ? reach.presented.certificate : null;
  if (!certificate) return skipped(`shows ${shown}; no reference to compare with`);
  const { validFrom, validTo } = certificate;
  if (now < validFrom.getTime()) {
    return failed(`shows ${shown}, before the gateway's certificate is valid (${validFrom.toISOString()})`, SET_IT);
  }
  if (now > validTo.getTime()) {
    return failed(
      `shows ${shown}, after the gateway's certificate expired (${validTo.toISOString()})`,
      `if the time is right, renew the gateway's certificate; otherwise ${SET_IT}`,
    );
  }
  return ok(`${shown}, within the validity of the gateway's certificate`);
}

/** @returns milliseconds by which this machine's clock is ahead; null when the server gives no time */
async function skewAgainst(origin: string, now: () => number, proxies: ProxyRules, ms: number): Promise<number | null> {
  try {
    const asked = now();
    const date = Date.parse(
      (await withDeadline(dateOf(new URL(origin), proxies, ms), 'asking for the time', ms)) ?? '',
    );
    // A Date header has whole seconds: half a second has passed on average.
    return Number.isNaN(date) ? null : (asked + now()) / 2 - (date + 500);
  } catch {
    return null; // other checks report an unreachable server
  }
}

/** Reads the `Date` header of a response. Ignores certificate errors, which a wrong clock causes; sends no secrets. */
function dateOf(origin: URL, proxies: ProxyRules, ms: number): Promise<string | undefined> {
  const tls = { rejectUnauthorized: false };
  const createConnection = connectionFor(origin, proxies, tls, AbortSignal.timeout(ms));
  const headers = { 'user-agent': 'device-agent', connection: 'close' };
  const options = { method: 'HEAD', headers, ...(createConnection && { createConnection }) };
  return new Promise((resolve, reject) => {
    const request =
      origin.protocol === 'https:' ? requestHttps(origin, { ...options, ...tls }) : requestHttp(origin, options);
    request.on('response', (response) => {
      resolve(response.headers.date);
      response.destroy();
    });
    request.on('error', reject);
    request.end();
  });
}
