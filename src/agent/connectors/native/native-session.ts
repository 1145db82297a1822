import type { Duplex } from 'node:stream';
import type { Channel, ChannelReceiver } from '../../../agent-protocol/channel.ts';
import type { Connection } from '../../../agent-protocol/connection.ts';
import { MuxError } from '../../../agent-protocol/frames.ts';
import { HeartbeatEcho } from '../../../agent-protocol/heartbeat.ts';
import {
  AuthAnswer,
  BindAnswer,
  CommandAnswer,
  LinkKindCommand,
  OtherNodesAnswer,
  type ProxyHeader,
  RefusedAnswer,
  StopTunnel,
  StreamType,
  type TimesAway,
} from '../../../agent-protocol/messages.ts';
import { parseRpcError, RpcResponder, TypedStream } from '../../../agent-protocol/rpc.ts';
import { ApiError, messageOf } from '../../../lib/errors.ts';
import { segmentsSentAgain } from '../../../lib/network/kernel-counts.ts';
import { DeadlineExceeded, withDeadline, withSignal } from '../../../lib/time/deadline.ts';
import type { ConnectedEndpoint, EndpointRequest, EndpointUpstream, RequestWatcher } from '../connector.ts';
import type { DataBudget } from '../data-budget.ts';
import { apiErrorOf, offline, redact } from '../gateway-error.ts';
import {
  type AgentCommand,
  type GatewayLink,
  type GatewayLinkOptions,
  type GatewayNode,
  type GatewaySession,
  SessionEndpoint,
  SessionRefused,
  sessionMetadata,
} from '../gateway-link.ts';
import { routeTo } from '../gateway-route.ts';
import { connectToGateway, type GatewaySocketOptions } from '../gateway-socket.ts';
import { LinkPace, TICK_MS } from '../link-pace.ts';
import { ProgressMonitor } from '../progress-monitor.ts';
import { RpcQueue } from '../rpc-queue.ts';
import { ProbedConnection } from './probed-connection.ts';
import { authRequest, bindRequest, NOT_SUPPORTED, reportReach, watchRequests } from './requests.ts';
import {
  HEARTBEAT_INTERVAL_S,
  HEARTBEAT_TOLERANCE_S,
  type Resumption,
  type SessionLinkOptions,
  SessionLinks,
} from './session-links.ts';
import { ProxyStream, UpstreamStream } from './upstream-stream.ts';

const CONNECT_DEADLINE_MS = 18_000;
const BIND_DEADLINE_MS = 15_000;
const UNBIND_DEADLINE_MS = 5000;
/** For all endpoints, and what clients have under way, on stop. The process has 5 s for that. */
const DRAIN_DEADLINE_MS = 2000;
/** Until the gateway knows when the device comes back. */
const LEAVE_DEADLINE_MS = 2000;
/** The gateway accepts 64 streams of an agent, one of which carries heartbeats. */
const CALLS_AT_ONCE = 32;

interface NativeSessionOptions extends SessionLinkOptions {
  version: string;
  metadata: string;
  /** Above 0 for a session beside the first one. */
  number: number;
  progress: ProgressMonitor;
  onCommand: GatewayLinkOptions['onCommand'];
}

/** A link to a gateway of our own, without the SDK. */
export function openNativeLink(options: GatewayLinkOptions): GatewayLink {
  const { authtoken, version, clock, log, onCommand, budget = null } = options;
  const route = routeTo(options.serverAddr, options.proxies, options.authorities, budget);
  const progress = new ProgressMonitor(clock);
  const resumption: Resumption = { clientId: '', tlsSession: null, budget: '' };
  /** Of sessions beside the first one. Gateways of a cluster resume each other's. */
  let nodeSession: Buffer | null = null;
  const { address, dial } = route;
  const pace = options.pace ?? new LinkPace('default', clock);
  const fixed = {
    address,
    dial,
    get ca() {
      return route.ca;
    },
    get protocols() {
      return route.protocols;
    },
    time: options.time,
    version,
    metadata: sessionMetadata(),
    resumption,
    pace,
    budget,
    sentAgain: options.sentAgain ?? segmentsSentAgain,
    clock,
    progress,
    log,
    onCommand,
  };
  const probed = new ProbedConnection(() => socketOptions(fixed), route.probe, clock);
  return {
    ...route,
    probe: (signal, onConnected) => {
      if (budget && !budget.mayConnect) throw new Error(budget.problem);
      return probed.probe(signal, onConnected);
    },
    progress,
    isMetered: () => pace.kind === 'metered',
    onLinkChanged: (listener) => {
      pace.onKind = listener;
    },
    connect: () => connectNativeSession({ ...fixed, number: 0, authtoken: authtoken() }, { probed }),
    connectTo: ({ address: node, serverName }, signal) => {
      const { dial, address: its } = routeTo(node, options.proxies, options.authorities, budget);
      const there = { ...fixed, dial, address: { ...its, serverName }, progress: new ProgressMonitor(clock) };
      // The same agent for the gateways.
      const { clientId } = resumption;
      const own = {
        clientId,
        budget: '',
        get tlsSession() {
          return nodeSession ?? (serverName === address.serverName ? resumption.tlsSession : null);
        },
        set tlsSession(session) {
          nodeSession = session;
        },
      };
      return connectNativeSession({ ...there, resumption: own, number: 1, authtoken: authtoken() }, { outer: signal });
    },
    close: () => probed.close(),
  };
}

/**
 * Starts a session, which never reconnects.
 *
 * @throws {SessionRefused} when the gateway is unreachable, cannot be verified, or refuses
 */
async function connectNativeSession(
  options: NativeSessionOptions,
  { probed, outer }: { probed?: ProbedConnection; outer?: AbortSignal },
): Promise<GatewaySession> {
  const { clock, authtoken, budget } = options;
  if (budget && !budget.mayConnect) throw new SessionRefused(null, budget.problem);
  const work = async (signal: AbortSignal) => {
    const socket = probed?.take() ?? (await connectToGateway(socketOptions(options), signal));
    const session = new NativeSession(socket, options);
    signal.addEventListener('abort', () => session.end(messageOf(signal.reason)));
    await session.start();
    return session;
  };
  try {
    return await withSignal(work, 'starting a session', CONNECT_DEADLINE_MS, outer, clock);
  } catch (error) {
    if (error instanceof SessionRefused) throw error;
    throw new SessionRefused(null, redact(messageOf(error), authtoken), { cause: error });
  }
}

function socketOptions(options: Omit<SessionLinkOptions, 'authtoken'>): GatewaySocketOptions {
  const { address, dial, ca, protocols = [], time, resumption, pace } = options;
  const onTlsSession = (session: Buffer) => {
    resumption.tlsSession = session;
  };
  const { tlsSession } = resumption;
  return { address, dial, ca, protocols, time, tlsSession, onTlsSession, isMetered: pace.kind === 'metered' };
}

interface Served {
  endpoint: SessionEndpoint;
  upstream: EndpointUpstream;
  stopReports: (() => void) | undefined;
  /** The device's own API. */
  isOwn: boolean;
}

/** A session with a gateway. It lives as long as one of its links. */
class NativeSession implements GatewaySession {
  readonly lost: Promise<string>;
  node?: NonNullable<GatewaySession['node']>;
  reportAway?: NonNullable<GatewaySession['reportAway']>;
  #settleLost: (reason: string) => void = () => {};
  readonly #links: SessionLinks;
  readonly #rpc: RpcQueue;
  /** By the gateway's ids. */
  readonly #served = new Map<string, Served>();
  #hasReports = false;
  #takesUpstreamStates = false;
  #reportsBudget = false;
  /** Connections of clients. */
  readonly #streams = new Set<Channel>();
  /** Whether the gateway has heard of the budget in this session. */
  #hasReported = false;
  /** Whether the gateway is told that nothing is left of the budget. */
  #isLeaving = false;
  #onNoStreams = () => {};

  constructor(
    socket: Duplex,
    private readonly options: NativeSessionOptions,
  ) {
    this.lost = new Promise((resolve) => {
      this.#settleLost = resolve;
    });
    this.#links = new SessionLinks(socket, options, {
      accept: (channel, link) => {
        channel.receiver = new TypedStream(channel, (type) => this.#receiverFor(type, channel, link));
      },
      lost: (message) => this.#lose(message),
    });
    this.#rpc = new RpcQueue(options.clock, (error) => this.end(error.message), CALLS_AT_ONCE);
  }

  /** Authenticates; rejects when the gateway refuses, or the connection is lost. */
  async start(): Promise<void> {
    const { authtoken, version, metadata, resumption, number } = this.options;
    const { clientId } = resumption;
    const hasBudget = this.options.budget !== null;
    const isMetered = this.options.pace.own === 'metered';
    // Soon they are further apart anyway: meanwhile, the gateway's own limits suffice.
    const heartbeats = {
      heartbeatIntervalS: isMetered ? 0 : HEARTBEAT_INTERVAL_S,
      heartbeatToleranceS: isMetered ? 0 : HEARTBEAT_TOLERANCE_S,
    };
    const request = authRequest({
      authtoken,
      clientId,
      version,
      metadata,
      number,
      hasBudget,
      isMetered,
      ...heartbeats,
    });
    const answer = await this.#links.call(StreamType.auth, request, AuthAnswer);
    if (answer.Error !== '') {
      this.end('refused');
      const { code, message } = parseRpcError(redact(answer.Error, authtoken));
      throw new SessionRefused(code, message, { retryAfterS: answer.RetryAfterS });
    }
    resumption.clientId = answer.ClientId;
    this.#links.extend(answer.Extra);
    this.options.pace.joined();
    this.options.pace.follow(answer.Extra.Metered);
    this.#reportsBudget = answer.Extra.DataBudgets;
    this.#followBudget();
    this.#hasReports = answer.Extra.RequestFeed;
    this.#takesUpstreamStates = answer.Extra.UpstreamStates;
    if (answer.Extra.TimesAway) this.reportAway = (times) => this.#reportAway(times);
    const { Node: id } = answer.Extra;
    if (id !== '') this.node = { id, others: () => this.#otherNodes() };
    // Aborted: the session is over already.
    void this.#tick().catch(() => {});
  }

  async open(request: EndpointRequest): Promise<ConnectedEndpoint> {
    try {
      return await this.#rpc.call({
        what: `binding ${request.domain ?? 'an endpoint'}`,
        deadlineMs: BIND_DEADLINE_MS,
        start: () => this.#bind(request),
        // Only a session that has ended discards it.
        discard: () => {},
      });
    } catch (error) {
      if (error instanceof ApiError) throw error;
      const message = messageOf(error);
      throw error instanceof DeadlineExceeded ? offline(message, error) : apiErrorOf({ code: null, message });
    }
  }

  end(reason: string): void {
    this.#links.close(reason);
  }

  async close(patienceMs = DRAIN_DEADLINE_MS): Promise<void> {
    const { clock, log } = this.options;
    try {
      if (!this.#links.signal.aborted) {
        await withDeadline(this.#drain(), 'answering the last requests', patienceMs, undefined, clock);
      }
    } catch (error) {
      log.debug({ reason: messageOf(error) }, 'session ended with open connections');
    }
    this.end('closed by the agent');
  }

  /** Takes all endpoints offline, and waits until clients have no connections any more. */
  async #drain(): Promise<void> {
    const unbind = (id: string) => this.#links.call(StreamType.unbind, { Id: id, Drain: true }, CommandAnswer);
    await Promise.allSettled([...this.#served.keys()].map(unbind));
    if (this.#streams.size > 0) {
      await new Promise<void>((resolve) => {
        this.#onNoStreams = resolve;
      });
    }
    await this.#links.delivered(DRAIN_DEADLINE_MS);
  }

  async #tick(): Promise<void> {
    for (;;) {
      await this.options.clock.sleep(TICK_MS, this.#links.signal);
      this.options.progress.report();
      this.#links.tick();
    }
  }

  #followBudget(): void {
    const { budget } = this.options;
    if (budget === null) return;
    const stop = budget.onChange(() => void this.#reportBudget().catch(() => {}));
    this.#links.signal.addEventListener('abort', stop);
    void this.#reportBudget().catch(() => {});
  }

  /** The gateway is told what concerns it, and each twentieth that is used. When nothing is left, the session ends. */
  async #reportBudget(): Promise<void> {
    const { budget, resumption } = this.options;
    if (budget === null || this.#links.signal.aborted || this.#isLeaving) return;
    const { level, step, restS, nextAt } = budget.state;
    if (level === 'spent') return this.#leave(budget, nextAt);
    if (!this.#reportsBudget) return;
    const exempt = [...this.#served].filter(([, { isOwn }]) => isOwn).map(([id]) => id);
    // The gateway keeps a normal budget over sessions; other levels concern this session.
    const known = JSON.stringify([level, step, ...(level === 'normal' ? [] : exempt)]);
    if (known === resumption.budget && (level === 'normal' || this.#hasReported)) return;
    this.#hasReported = true;
    resumption.budget = known;
    await this.#sendBudget(budget, { RetryAfterS: level === 'paused' ? restS : 0, Exempt: exempt });
  }

  /** Says when the device comes back. Clients get nothing more meanwhile. */
  async #leave(budget: DataBudget, nextAt: Date | null): Promise<void> {
    const { clock, resumption } = this.options;
    this.#isLeaving = true;
    for (const channel of this.#streams) channel.reset(MuxError.cancelled);
    resumption.budget = '';
    if (this.#reportsBudget && nextAt !== null) {
      const { restS } = budget.state;
      const BackInS = Math.min(restS, Math.max(1, Math.ceil((nextAt.getTime() - budget.now) / 1000)));
      const told = this.#sendBudget(budget, { RetryAfterS: restS, Exempt: [], BackInS });
      await withDeadline(told, 'saying when it comes back', LEAVE_DEADLINE_MS, undefined, clock).catch(() => {});
    }
    this.end(budget.problem);
  }

  async #sendBudget({ state }: DataBudget, report: object): Promise<void> {
    const { usedBytes, limitBytes, restS } = state;
    const UsedPercent = Math.floor((100 * usedBytes) / limitBytes);
    const body = { UsedPercent, LimitBytes: limitBytes, PeriodS: restS, ...report };
    await this.#links.call(StreamType.dataBudget, body, CommandAnswer);
  }

  async #otherNodes(): Promise<GatewayNode[]> {
    const {
      Error: reason,
      Nodes,
      Name: serverName,
    } = await this.#links.call(StreamType.otherNodes, {}, OtherNodesAnswer);
    if (reason !== '') throw new Error(reason);
    return Nodes.map((address) => ({ address, serverName }));
  }

  async #reportAway(times: TimesAway): Promise<void> {
    const { clock } = this.options;
    const call = this.#links.call(StreamType.timesAway, times, CommandAnswer);
    const { Error: reason } = await withDeadline(call, 'reporting times away', BIND_DEADLINE_MS, undefined, clock);
    if (reason !== '') throw new Error(reason);
  }

  #lose(message: string): void {
    this.#rpc.close(offline(message));
    for (const { endpoint, stopReports } of this.#served.values()) {
      stopReports?.();
      endpoint.end({ code: null, message: `session ended: ${message}` });
    }
    this.#served.clear();
    this.#settleLost(message);
  }

  #receiverFor(type: number, channel: Channel, link: Connection): ChannelReceiver {
    switch (type) {
      case StreamType.part:
        return this.#links.acceptPart(channel, link) ?? this.#responder(channel, () => NOT_SUPPORTED);
      case StreamType.proxy:
        channel.maySpread = true;
        return new ProxyStream(channel, (header) => this.#serve(header, channel));
      case StreamType.heartbeat:
        return new HeartbeatEcho(channel);
      case StreamType.stopTunnel:
        return this.#responder(channel, (body) => this.#stop(body));
      case StreamType.refusedAnswer:
        return this.#responder(channel, (body) => this.#answerRefused(body));
      case StreamType.linkKind:
        return this.#responder(channel, (body) => this.#followLink(body));
      case StreamType.restart:
        return this.#responder(channel, () => this.#command('restart'));
      case StreamType.stop:
        return this.#responder(channel, () => this.#command('stop'));
      default:
        return this.#responder(channel, () => NOT_SUPPORTED);
    }
  }

  #responder(channel: Channel, answer: (body: unknown) => object): RpcResponder {
    const report = (err: unknown) => this.options.log.error({ err }, 'request of the gateway failed');
    return new RpcResponder(channel, async (request) => ({ body: answer(request.parse()) }), report);
  }

  #serve({ Id, Proto }: ProxyHeader, channel: Channel): ChannelReceiver | null {
    const served = this.#served.get(Id);
    const budget = this.options.budget ?? undefined;
    if (!served || this.#isLeaving || (budget?.isPaused && !served.isOwn)) return null;
    this.#streams.add(channel);
    return new UpstreamStream(channel, {
      connecting: served.upstream.connect(),
      isHttp: Proto === 'http' || Proto === 'https',
      traffic: served.upstream.observeConnection?.(),
      use: this.#links.use,
      onBytes: budget && ((count) => budget.carry(served.endpoint.url, count)),
      onClosed: () => {
        this.#streams.delete(channel);
        if (this.#streams.size === 0) this.#onNoStreams();
      },
    });
  }

  #stop(body: unknown): object {
    const { Id, Message, ErrorCode } = StopTunnel.parse(body);
    this.#served.get(Id)?.endpoint.end({ code: ErrorCode || null, message: redact(Message, this.options.authtoken) });
    return {};
  }

  #answerRefused(body: unknown): object {
    const { Id, Reason } = RefusedAnswer.parse(body);
    this.#served.get(Id)?.upstream.answerRefused?.(Reason);
    return {};
  }

  #followLink(body: unknown): object {
    this.options.pace.follow(LinkKindCommand.parse(body).Metered);
    return {};
  }

  #command(command: AgentCommand): object {
    const { onCommand } = this.options;
    if (!onCommand) return NOT_SUPPORTED;
    // After the answer.
    setImmediate(onCommand, command);
    return {};
  }

  async #bind(request: EndpointRequest): Promise<SessionEndpoint> {
    const answer = await this.#links.call(StreamType.bind, bindRequest(request), BindAnswer);
    if (answer.Error !== '') throw apiErrorOf(parseRpcError(redact(answer.Error, this.options.authtoken)));
    const { Id: id, URL: url, Warnings: warnings, DomainURL: domainUrl } = answer;
    const watch = (watcher: RequestWatcher) => watchRequests(this.#links.first, id, watcher);
    const endpoint = new SessionEndpoint(url, () => this.#unbind(id), {
      ...(warnings.length > 0 && { policyWarnings: warnings }),
      ...(domainUrl !== '' && { domainUrl }),
      ...(this.#hasReports && { watchRequests: watch }),
    });
    const { upstream, options } = request;
    // Only a pool has another member to choose.
    const stopReports = this.#takesUpstreamStates && options?.pooling ? this.#reportReach(id, upstream) : undefined;
    this.#served.set(id, { endpoint, upstream, stopReports, isOwn: request.isOwn === true });
    if (request.isOwn) void this.#reportBudget().catch(() => {});
    return endpoint;
  }

  #reportReach(id: string, upstream: EndpointUpstream): (() => void) | undefined {
    const send = (isDown: boolean) =>
      this.#rpc.call({
        what: 'reporting an upstream',
        deadlineMs: BIND_DEADLINE_MS,
        start: () => this.#links.call(StreamType.upstreamState, { Id: id, Down: isDown }, CommandAnswer),
        discard: () => {},
      });
    const { clock, pace } = this.options;
    return reportReach(upstream, send, { clock, signal: this.#links.signal, pace });
  }

  async #unbind(id: string): Promise<void> {
    this.#served.get(id)?.stopReports?.();
    this.#served.delete(id);
    // The end of a session ends its endpoints.
    if (this.#links.signal.aborted) return;
    try {
      await this.#rpc.call(
        {
          what: 'unbinding the endpoint',
          deadlineMs: UNBIND_DEADLINE_MS,
          start: () => this.#links.call(StreamType.unbind, { Id: id }, CommandAnswer),
          discard: () => {},
        },
        true,
      );
    } catch (error) {
      // Ending the session makes sure that the endpoint ends.
      this.end(`endpoint could not be unbound: ${messageOf(error)}`);
    }
  }
}
