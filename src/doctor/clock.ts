import { request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import { withDeadline } from '../lib/deadline.ts';
import { connectionFor } from '../lib/proxied-connection.ts';
import type { ProxyRules } from '../lib/proxy-rules.ts';
import { type Check, check, failed, ok, type Result, skipped } from './finding.ts';
import type { Reach } from './gateway-reach.ts';

/** Certificates and tokens stand this much. */
const TOLERATED_MS = 60_000;
/** The program is younger than this: a clock that shows less was never set. */
const NEVER_SET = Date.parse('2025-01-01T00:00:00Z');
const SET_IT = 'run sudo timedatectl set-ntp true; without a battery-backed clock, wait for the network at boot';
const ANSWER_MS = 4_000;

export interface ClockSources {
  /** Milliseconds since 1970 by this machine's clock. */
  now: () => number;
  /** Null: the gateway is the embedded one. */
  reach: Promise<Reach> | null;
  /** Origin of a service whose answers say what time it is; null: none is known. */
  dateFrom: string | null;
  /** On the way there. */
  proxies: ProxyRules;
  patience: number;
}

/** How far this machine's clock is off, by what can be had from outside. */
export function clockCheck({ now, reach, dateFrom, proxies, patience }: ClockSources): Check {
  return check('clock', 'Clock', async () => {
    const shown = new Date(now()).toISOString();
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

/** @returns milliseconds by which this machine is ahead; null when the service does not tell */
async function skewAgainst(origin: string, now: () => number, proxies: ProxyRules, ms: number): Promise<number | null> {
  try {
    const asked = now();
    const date = Date.parse(
      (await withDeadline(dateOf(new URL(origin), proxies, ms), 'asking for the time', ms)) ?? '',
    );
    // A Date header has whole seconds: on the average half a second has passed in it.
    return Number.isNaN(date) ? null : (asked + now()) / 2 - (date + 500);
  } catch {
    return null; // the time is a by-product here: whether that service answers is for others to say
  }
}

/** The `Date` of an answer. Nothing is sent and nothing else believed, so whoever answers may: a wrong clock breaks TLS. */
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
