import type { ListedTunnel, StatusReport } from '../agent/api-client.ts';
import { type GatewayLink, type GatewaySession, SessionRefused, tryBinding } from '../agent/open-link.ts';
import { messageOf } from '../lib/errors.ts';
import { DeadlineExceeded, withDeadline } from '../lib/time/deadline.ts';
import { because, endpointAdvice, type Name, sessionAdvice } from './advice.ts';
import { type Check, failed, NotKnown, ok, type Result, skipped, summarize } from './finding.ts';
import { isTrusted, type Reach } from './gateway-reach.ts';
import type { RunningAgent } from './running-agent.ts';

export interface SessionSources {
  agent: Promise<RunningAgent>;
  /** Null when the gateway is embedded; so is `link`. */
  reach: Promise<Reach> | null;
  link: Pick<GatewayLink, 'connect' | 'close'> | null;
  names: Promise<readonly Name[]>;
  live: () => Promise<readonly ListedTunnel[]>;
  patience: number;
}

type Endpoint = Pick<ListedTunnel, 'url' | 'status' | 'last_error'>;

interface Findings {
  authtoken: Result;
  rights: Result[];
}

const CONNECT_MS = 3_500;
const BIND_ALL_MS = 1_500;
const EMBEDDED = 'embedded gateway: creates its own';
/** Checks that the gateway accepts the authtoken, and that it may bind the tunnels' domains. */
export function sessionChecks(sources: SessionSources): Check[] {
  let findings: Promise<Findings> | null = null;
  const examined = () => {
    findings ??= examine(sources);
    return findings;
  };
  return [
    { name: 'authtoken', title: 'Authtoken', run: async () => (await examined()).authtoken },
    { name: 'acl', title: 'Domain permissions', run: async () => (await examined()).rights },
  ];
}

async function examine({ agent, reach, link, names, live, patience }: SessionSources): Promise<Findings> {
  const running = await agent;
  if (running.status) {
    const { session } = running.status;
    const rights =
      session.state === 'online' ? await judgeLive(live, running.status) : [skipped('the running agent is offline')];
    return { authtoken: judgeRunning(session), rights };
  }
  if (!reach || !link) return neither(EMBEDDED);
  if (!isTrusted(await reach)) return neither('the gateway is unreachable or not trusted');
  let session: GatewaySession;
  try {
    session = await withDeadline(
      link.connect(),
      'starting a session',
      CONNECT_MS * patience,
      (late) => void late.close(),
    );
  } catch (error) {
    link.close();
    return { authtoken: refused(error), rights: [skipped('no session')] };
  }
  try {
    const authtoken = ok('accepted by the gateway');
    // A running agent whose API is unreachable may serve these domains.
    if (running.holdsFolder !== false)
      return { authtoken, rights: [skipped('a running agent may be using the domains')] };
    return { authtoken, rights: await tryNames(session, names, BIND_ALL_MS * patience) };
  } finally {
    await session.close();
    link.close();
  }
}

function neither(reason: string): Findings {
  return { authtoken: skipped(reason), rights: [skipped(reason)] };
}

function judgeRunning({ state, since, last_error }: StatusReport['session']): Result {
  if (state === 'online') return ok(`the running agent has been online since ${since}`);
  return failed(`the running agent is ${state}${because(last_error)}`, sessionAdvice(last_error));
}

async function judgeLive(live: SessionSources['live'], { remote_api: own }: StatusReport): Promise<Result[]> {
  const tunnels = await live();
  if (tunnels.length === 0 && !own) return [skipped('no tunnels and no AGENT_DOMAIN')];
  const results = summarize(
    tunnels.map((tunnel) => judgeEndpoint(tunnel, tunnel)),
    (count) => `${tunnelCount(count)} online at the running agent`,
  );
  if (!own) return results;
  const remote = judgeEndpoint(own, { domain: new URL(own.url).hostname, protocol: 'http', isOwn: true });
  return [remote.status === 'ok' ? ok(`remote API online at ${own.url}`) : remote, ...results];
}

function judgeEndpoint({ url, status, last_error }: Endpoint, name: Name): Result {
  // Another check reports the upstreams.
  if (status === 'online' || status === 'degraded') return ok(url);
  const advice = last_error?.code ? endpointAdvice(last_error.code, name) : null;
  return failed(`${url} ${status === 'failed' ? '' : 'is '}${status}${because(last_error)}`, advice);
}

function refused(error: unknown): Result {
  if (error instanceof DeadlineExceeded) {
    return failed(error.message, 'the gateway accepts connections but does not answer: check its log');
  }
  const code = error instanceof SessionRefused ? error.code : null;
  return failed(
    [messageOf(error), code && `(${code})`].filter(Boolean).join(' '),
    code === null ? null : sessionAdvice({ code, message: messageOf(error) }),
  );
}

async function tryNames(session: GatewaySession, known: SessionSources['names'], ms: number): Promise<Result[]> {
  let names: readonly Name[];
  try {
    names = await known;
  } catch (error) {
    if (error instanceof NotKnown) return [skipped(error.message)];
    throw error;
  }
  if (names.length === 0) return [skipped('no tunnels and no AGENT_DOMAIN')];
  const end = performance.now() + ms;
  const results: Result[] = [];
  for (const name of names) {
    const left = end - performance.now();
    results.push(left > 0 ? await tryName(session, name, left) : skipped('not all domains were checked in time'));
  }
  return summarize(results, (count) => (count === 1 ? '1 domain allowed' : `${count} domains allowed`));
}

async function tryName(session: GatewaySession, name: Name, ms: number): Promise<Result> {
  const found = await tryBinding(session, name, ms);
  switch (found.kind) {
    case 'allowed':
      return ok(name.domain);
    case 'unknown':
      return skipped(found.problem);
    case 'refused':
      return failed(found.problem, endpointAdvice(found.code, name));
  }
}

function tunnelCount(count: number): string {
  return `${count} ${count === 1 ? 'tunnel is' : 'tunnels are'}`;
}
