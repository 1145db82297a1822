import { ApiError, messageOf } from '../../lib/errors.ts';
import { parseUpstream, type Upstream } from '../../lib/network/upstream-address.ts';
import type { UpstreamRules } from '../../settings/upstream-rules.ts';
import { beginsWithHttp1, UpstreamFault, type UpstreamTls } from '../connectors/connector.ts';
import { connectUpstream } from './connect-upstream.ts';
import { type CheckOptions, checkHttp } from './upstream-check.ts';
import { UpstreamGuard } from './upstream-guard.ts';
import { tlsOf } from './upstream-tls.ts';

/** The upstream of a tunnel, as it can be tried. */
export interface TriedUpstream {
  text: string;
  /** Null when this version does not support it; `problem` says why. */
  upstream: Upstream | null;
  problem: string;
  isHttp: boolean;
  tls: UpstreamTls;
}

/** What a trial has shown. `exposed`: it serves the data folder at the path. */
export type UpstreamFinding =
  | { kind: 'good' }
  | { kind: 'refused'; problem: string; code: string | null }
  | { kind: 'wrong' | 'silent'; problem: string }
  | { kind: 'fault'; problem: string; advice: string | null }
  | { kind: 'exposed'; path: string };

export function upstreamOf(tunnel: { protocol: string; forwards_to: string }): TriedUpstream {
  const text = tunnel.forwards_to;
  const isHttp = beginsWithHttp1(tunnel);
  try {
    const upstream = parseUpstream(text);
    return { text, upstream, problem: '', isHttp, tls: tlsOf(upstream, tunnel) };
  } catch (error) {
    return { text, upstream: null, problem: messageOf(error), isHttp, tls: {} };
  }
}

/** Connects to an upstream as the agent does for a client, and asks one of an http tunnel for something. Never rejects. */
export async function tryUpstream(
  { upstream, problem, isHttp, tls }: TriedUpstream,
  { allow, ...shared }: Omit<CheckOptions, 'guard' | 'tls'> & { allow: UpstreamRules },
): Promise<UpstreamFinding> {
  if (upstream === null) return { kind: 'refused', problem, code: null };
  const options = { ...shared, guard: new UpstreamGuard(allow), tls };
  try {
    await options.guard.check(upstream);
  } catch (error) {
    return { kind: 'refused', problem: messageOf(error), code: error instanceof ApiError ? error.code : null };
  }
  try {
    const socket = await connectUpstream(upstream, { ...options, http2: !isHttp });
    if (!isHttp) {
      socket.destroy();
      return { kind: 'good' };
    }
    const found = await checkHttp(socket, upstream, options);
    if (found.problem !== null) return { kind: 'wrong', problem: found.problem };
    return found.exposedPath === null ? { kind: 'good' } : { kind: 'exposed', path: found.exposedPath };
  } catch (error) {
    if (error instanceof UpstreamFault) return { kind: 'fault', problem: error.summary, advice: error.advice };
    return { kind: 'silent', problem: messageOf(error) };
  }
}
