import { connect as connectTcp, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { Tunnel } from '../agent/tunnels/tunnel.ts';
import { parseUpstream, type Upstream } from '../agent/upstreams/upstream.ts';
import { UpstreamGuard } from '../agent/upstreams/upstream-guard.ts';
import { ApiError, messageOf } from '../lib/errors.ts';
import { Limiter } from '../lib/limiter.ts';
import { lookupName } from '../lib/network/loopback-names.ts';
import type { Settings } from '../settings/agent-settings.ts';
import { START_UPSTREAM, upstreamAdvice } from './advice.ts';
import { type Check, check, failed, ok, type Result, skipped, summarize } from './finding.ts';

const ANSWER_MS = 3_000;
/** Upstreams that are checked concurrently. */
const MAX_TRYING = 16;

/** Checks that the tunnels' upstreams are allowed and accept connections. */
export function upstreamsCheck(tunnels: Promise<readonly Tunnel[]>, settings: Settings, patience: number): Check {
  const guard = new UpstreamGuard(settings.allowUpstreams);
  const limiter = new Limiter(MAX_TRYING);
  return check('upstreams', 'Upstreams', async () => {
    const upstreams = [...new Set((await tunnels).map(({ forwards_to }) => forwards_to))];
    if (upstreams.length === 0) return skipped('no tunnels');
    const tried = upstreams.map((upstream) =>
      limiter.run(() => tryUpstream(upstream, guard, settings, ANSWER_MS * patience)),
    );
    return summarize(await Promise.all(tried), (count) => (count === 1 ? '1 answers' : `${count} answer`));
  });
}

async function tryUpstream(text: string, guard: UpstreamGuard, settings: Settings, ms: number): Promise<Result> {
  let upstream: Upstream;
  try {
    upstream = parseUpstream(text);
    await guard.check(upstream);
  } catch (error) {
    return failed(`${text}: ${messageOf(error)}`, upstreamAdvice(error instanceof ApiError ? error.code : null));
  }
  const verify = settings.verifyUpstreamTls;
  try {
    await reach(upstream, { guard, verify, ms });
    return ok(text);
  } catch (error) {
    const isTls = upstream.kind === 'tcp' && upstream.scheme === 'https';
    if (!isTls || isUnreachable(error)) return failed(`${text} does not answer (${messageOf(error)})`, START_UPSTREAM);
    return failed(
      `${text}: TLS failed (${tlsProblem(error)})`,
      'if it does not use TLS, forward to http://' +
        (verify ? '; for a self-signed certificate, set AGENT_VERIFY_UPSTREAM_TLS=false' : ''),
    );
  }
}

/** Whether the connection failed before TLS began. */
function isUnreachable(error: unknown): boolean {
  return error instanceof AggregateError || (error instanceof Error && 'syscall' in error) || error instanceof NoAnswer;
}

interface ReachOptions {
  guard: UpstreamGuard;
  /** Whether to verify the certificate. */
  verify: boolean;
  ms: number;
}

/** Connects to an allowed upstream as a tunnel would, but sends no data. */
async function reach(upstream: Upstream, { guard, verify, ms }: ReachOptions): Promise<void> {
  if (upstream.kind === 'unix') return opened(connectTcp(await guard.resolveSocket(upstream.path)), 'connect', ms);
  const { host, port, scheme } = upstream;
  const target = { host, port, lookup: lookupName, autoSelectFamily: true };
  if (scheme !== 'https') return opened(connectTcp(target), 'connect', ms);
  const name = host === 'localhost' || /^[\d.]+$|:/.test(host) ? {} : { servername: host };
  return opened(connectTls({ ...target, ...name, rejectUnauthorized: verify }), 'secureConnect', ms);
}

/** `reason` is readable, unlike OpenSSL's full message. */
function tlsProblem(error: unknown): string {
  return error instanceof Error && 'reason' in error ? String(error.reason) : messageOf(error);
}

class NoAnswer extends Error {}

async function opened(socket: Socket, event: 'connect' | 'secureConnect', ms: number): Promise<void> {
  const late = setTimeout(() => socket.destroy(new NoAnswer(`no answer within ${ms / 1000} s`)), ms);
  try {
    await new Promise<void>((resolve, reject) => {
      socket.once(event, () => resolve());
      socket.once('error', reject);
    });
  } finally {
    clearTimeout(late);
    socket.destroy();
  }
}
