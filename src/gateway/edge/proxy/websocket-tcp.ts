import { createHash } from 'node:crypto';
import type { Duplex } from 'node:stream';
import { ApiError } from '../../../lib/errors.ts';
import { trimSpace } from '../../../lib/http/header-fields.ts';
import type { PolicyResponse } from '../../../traffic-policy/policy-subjects.ts';
import type { ResponseOutcome } from '../../../traffic-policy/steps.ts';
import type { EdgeContext } from '../../context/gateway-context.ts';
import type { ClientInfo, GatewayEndpoint } from '../../endpoints/online-endpoint.ts';
import { TARGET_FAILED } from '../connections/connect-phase.ts';
import { pipeBoth } from '../connections/open-connections.ts';
import type { Upgrade } from '../http/client-message.ts';
import { upstreamFailure } from '../http/edge-errors.ts';
import { answerError, resetConnection } from '../http/error-response.ts';
import { headerValue } from '../http/headers.ts';
import type { EdgeRequest } from './edge-request.ts';
import { answerInstead } from './policy-outcome.ts';
import { headText, type OnConnected } from './upgrade.ts';
import { WebSocketStream } from './websocket-stream.ts';

/** RFC 6455, section 1.3. */
const ACCEPT_SUFFIX = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
const VERSION = '13';
/** The subprotocol name that noVNC and other clients use for raw bytes. */
const SUBPROTOCOL = 'binary';

const SWITCHING_PROTOCOLS = 101;

interface ConvertedClient {
  upgrade: Upgrade;
  from: ClientInfo;
  onConnected: OnConnected;
  context: EdgeContext;
}

export function rejectPlainRequest({ req, res, body }: EdgeRequest): void {
  body?.stop();
  const error = new ApiError(
    400,
    'ERR_NGROK_3206',
    'Expected a WebSocket request with a "Connection: upgrade" header.',
  );
  answerError(req, res, error, ['sec-websocket-version', VERSION]);
}

/** Converts WebSocket messages to bytes of the upstream and back (ngrok's documentation, "Websocket TCP Converter"). */
export function convertWebSocket(request: EdgeRequest, client: ConvertedClient): void {
  const key = request.req.headers['sec-websocket-key'] ?? '';
  if (!isWebSocket(request, key)) {
    rejectPlainRequest(request);
    return;
  }
  const response = { status: SWITCHING_PROTOCOLS, headers: acceptance(request, key) };
  const answer = (outcome: ResponseOutcome | undefined) => {
    if (outcome === undefined) connect(request, client, response);
    else answerInstead(request, outcome, client.context);
  };
  const outcome = request.policy.onHttpResponse?.(request, response);
  if (outcome instanceof Promise) void outcome.then(answer).catch(() => resetConnection(request.req.socket));
  else answer(outcome);
}

function connect(request: EdgeRequest, client: ConvertedClient, response: PolicyResponse): void {
  const { from, upgrade, onConnected, context } = client;
  const { req, res, endpoint, policy } = request;
  // It left while the policy ran: nothing would end the stream.
  if (req.socket.destroyed) return;
  let upstream: Duplex;
  try {
    upstream = openUpstream(endpoint, from);
  } catch (error) {
    request.fail();
    policy.onUpstreamDone?.(request, null);
    if (request.onFailure) {
      request.onFailure(TARGET_FAILED);
      return;
    }
    context.counters.upstreamFailures += 1;
    endpoint.traffic.countError();
    answerError(req, res, upstreamFailure(error));
    return;
  }
  policy.onUpstreamDone?.(request, response.status);
  request.watch?.answered(response.status, null);
  const socket = upgrade.accept();
  socket.write(headText(response.status, 'websocket', request.withCookies(response.headers)), 'latin1');
  const webSocket = new WebSocketStream(socket);
  onConnected(webSocket, upstream);
  pipeBoth(webSocket, upstream, request.bandwidth);
}

function isWebSocket({ req }: EdgeRequest, key: string): boolean {
  const { upgrade = '', 'sec-websocket-version': version } = req.headers;
  const isAsked = req.method === 'GET' && upgrade.toLowerCase() === 'websocket' && version === VERSION;
  return isAsked && /^[A-Za-z0-9+/]{22}==$/.test(key);
}

function acceptance({ headers }: EdgeRequest, key: string): string[] {
  const accept = createHash('sha1')
    .update(key + ACCEPT_SUFFIX)
    .digest('base64');
  const offered = (headerValue(headers, 'sec-websocket-protocol') ?? '').split(',').map((name) => trimSpace(name));
  const chosen = offered.includes(SUBPROTOCOL) ? ['sec-websocket-protocol', SUBPROTOCOL] : [];
  return ['sec-websocket-accept', accept, ...chosen];
}

/** Announces TCP to the agent, which would otherwise answer in HTTP when the upstream is unreachable. */
function openUpstream(endpoint: GatewayEndpoint, from: ClientInfo): Duplex {
  return endpoint.openStream({ ...from, protocol: 'tcp' });
}
