import type { Duplex } from 'node:stream';
import { dialSummary } from '../../../agent-protocol/dial-failure.ts';
import { messageOf } from '../../../lib/errors.ts';
import { isName, nameAt } from '../../../lib/http/header-fields.ts';
import { traitsOf } from '../../../traffic-policy/action-types.ts';
import { PolicyFailure } from '../../../traffic-policy/policy-errors.ts';
import type { RequestOutcome } from '../../../traffic-policy/steps.ts';
import type { ClientInfo, GatewayEndpoint } from '../../endpoints/online-endpoint.ts';
import { PROBE_HEADER, type ProbeOutcome, REACHED } from '../../endpoints/probe-outcome.ts';
import { MAX_FORWARDS, TARGET_OFFLINE } from '../connections/connect-phase.ts';
import { requestHead } from '../upstreams/upstream-connection.ts';
import type { EdgeRequest } from './edge-request.ts';

/** An upstream that hangs for longer is one that hangs. Then the agent gets a second to say that it is there. */
const UPSTREAM_MS = 8_000;
const POLICY_MS = 5_000;
const FIRST_ERROR = 500;
const NOT_IMPLEMENTED = 501;
const MAX_HEAD = 16_384;
/** The start of an HTTP/2 connection, with empty settings: a server that supports it answers with settings. */
const HTTP2_START = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0', 'latin1');

/** Actions that only accept clients who prove who they are, besides those that authenticate. */
const GATES: readonly string[] = ['gateway-share-links', 'verify-webhook', 'restrict-ips'];

/** What an endpoint's policy and its upstream do with a probe. It counts as no client's request. */
export async function examine(
  request: EdgeRequest,
  targetOf: (url: string) => GatewayEndpoint | undefined,
): Promise<ProbeOutcome> {
  let at = request;
  let outcome = await runPolicy(at);
  for (let forwards = 0; forwards <= MAX_FORWARDS; forwards++) {
    if (outcome === 'late') return { stage: 'policy', message: `the policy takes longer than ${POLICY_MS / 1000} s` };
    if (outcome === undefined) return askUpstream(at);
    if (outcome.kind === 'close') return { stage: 'policy', message: `${byAction(at)} closes the connection` };
    if (outcome.kind !== 'forward') return answered(at, outcome);
    const target = targetOf(outcome.url);
    if (target !== undefined) {
      at = at.forwardedTo(target, () => {});
      outcome = await runPolicy(at);
    } else if (outcome.resume === null)
      return { stage: 'session', message: `the internal endpoint ${outcome.url} is offline` };
    else outcome = await outcome.resume(TARGET_OFFLINE);
  }
  return { stage: 'policy', message: 'it forwards requests too often' };
}

async function runPolicy(request: EdgeRequest): Promise<RequestOutcome | undefined | 'late'> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<'late'>((resolve) => {
    timer = setTimeout(() => resolve('late'), POLICY_MS);
  });
  try {
    return await Promise.race([request.endpoint.policy.onHttpRequest?.(request), late]);
  } finally {
    clearTimeout(timer);
  }
}

async function answered(
  request: EdgeRequest,
  outcome: Extract<RequestOutcome, { kind: 'answer' | 'error' }>,
): Promise<ProbeOutcome> {
  const action = request.endedBy ?? '';
  const { status } = outcome;
  // Those who prove who they are come further.
  if (traitsOf(action)?.authenticates || GATES.includes(action)) return askUpstream(request);
  const isRefusal = outcome.kind === 'error' || outcome.refused || status >= FIRST_ERROR;
  return isRefusal ? { stage: 'policy', message: `${byAction(request)} answers ${status}` } : REACHED;
}

function byAction({ endedBy }: EdgeRequest): string {
  return endedBy === undefined ? 'the policy' : `the action ${endedBy}`;
}

/** Asks the upstream on a connection of its own. */
async function askUpstream(request: EdgeRequest): Promise<ProbeOutcome> {
  const { endpoint, connection, req } = request;
  if (endpoint.isCloud) return { stage: 'session', message: 'its policy answers not all requests' };
  const client: ClientInfo = { address: connection.client, protocol: endpoint.protocol, isProbe: true };
  let stream: Duplex;
  try {
    stream = endpoint.openStream(client);
  } catch (error) {
    return { stage: 'session', message: messageOf(error) };
  }
  const { headers } = request;
  for (let at = headers.length - 2; at >= 0; at -= 2) {
    const name = nameAt(headers, at);
    if (isName(name, PROBE_HEADER) || isName(name, 'connection')) headers.splice(at, 2);
  }
  headers.push('Connection', 'close');
  try {
    const parts = { request, body: null, awaitsContinue: false, trailers: false, upgrade: undefined };
    if (!endpoint.websocketTcp) stream.write(endpoint.http2Upstream ? HTTP2_START : requestHead(parts));
    const head = await firstBytes(stream, endpoint.http2Upstream, endpoint.websocketTcp);
    if (head !== null) return judged(head, endpoint);
    // What is silent may be the upstream or its agent.
    const isAlive = (await endpoint.owner?.isAlive()) ?? true;
    if (!isAlive) return { stage: 'session', message: 'the agent does not answer' };
    return { stage: 'upstream', message: `no response within ${UPSTREAM_MS / 1000} s` };
  } catch (error) {
    if (error instanceof PolicyFailure) return { stage: 'policy', message: error.message };
    const isOver = endpoint.owner?.online === false;
    return { stage: isOver ? 'session' : 'upstream', message: messageOf(error) };
  } finally {
    stream.destroy();
    // The edge has nothing more to read from it.
    req.body?.resume();
  }
}

function judged(head: Buffer, { http2Upstream, websocketTcp }: GatewayEndpoint): ProbeOutcome {
  const [, digits] = /^HTTP\/1\.[01] (\d{3})/.exec(head.toString('latin1', 0, 16)) ?? [];
  const status = Number(digits);
  const isDialFailure = status === 502 && head.includes('failed to dial backend');
  if (isDialFailure) {
    const summary = dialSummary(head);
    return { stage: 'upstream', message: `the agent cannot connect to it${summary === null ? '' : `: it ${summary}`}` };
  }
  if (http2Upstream || websocketTcp) return REACHED;
  // The SDK has no body for a HEAD request, and so does not say which.
  if (status === 502) return { stage: 'upstream', message: 'it answers 502, or the agent cannot connect to it' };
  if (digits === undefined) return { stage: 'upstream', message: 'it does not speak HTTP' };
  return status >= FIRST_ERROR && status !== NOT_IMPLEMENTED
    ? { stage: 'upstream', message: `it answers ${status}` }
    : REACHED;
}

/** A response's head, or what there is of an HTTP/2 or TCP connection. @returns null: nothing came in time @throws the connection's error */
function firstBytes(stream: Duplex, isHttp2: boolean, isTcp: boolean): Promise<Buffer | null> {
  return new Promise((resolve, reject) => {
    const pieces: Buffer[] = [];
    // Who speaks TCP may wait for the client: what has not failed by then is there.
    const ms = isTcp ? 1_000 : UPSTREAM_MS;
    const timer = setTimeout(() => resolve(isTcp ? Buffer.alloc(0) : null), ms);
    const settle = () => {
      clearTimeout(timer);
      resolve(Buffer.concat(pieces));
    };
    stream.on('data', (piece: Buffer) => {
      pieces.push(piece);
      const all = Buffer.concat(pieces);
      // The agent says in a body why it cannot connect.
      const isWhole = !all.toString('latin1', 0, 16).startsWith('HTTP/1.1 502') && all.includes('\r\n');
      if (isHttp2 || isTcp || isWhole || all.length > MAX_HEAD) settle();
    });
    stream.on('end', () => (pieces.length > 0 ? settle() : stream.destroy(new Error('it closes the connection'))));
    stream.on('error', (error) => {
      clearTimeout(timer);
      reject(error);
    });
    stream.on('close', () => {
      if (pieces.length > 0) return settle();
      clearTimeout(timer);
      reject(new Error('it closes the connection'));
    });
  });
}
