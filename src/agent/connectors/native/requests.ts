import { ByteQueue } from '../../../agent-protocol/byte-queue.ts';
import type { ChannelReceiver } from '../../../agent-protocol/channel.ts';
import type { Connection } from '../../../agent-protocol/connection.ts';
import { LARGEST_WINDOW } from '../../../agent-protocol/credit-window.ts';
import { MOST_LINKS } from '../../../agent-protocol/link-bundle.ts';
import { StreamType, streamPrefix } from '../../../agent-protocol/messages.ts';
import { MAX_LINE } from '../../../agent-protocol/request-report.ts';
import type { Clock } from '../../../lib/time/clock.ts';
import type { TrafficPolicyDocument } from '../../../traffic-policy/document.ts';
import type { EndpointRequest, EndpointUpstream, RequestWatcher } from '../connector.ts';
import { CLIENT_TYPE } from '../gateway-link.ts';
import type { LinkKind } from '../link-pace.ts';

// Both requests are what `@ngrok/ngrok` 1.7.0 sends for the same settings, without members that say nothing, which gateways of
// every version take for left out, and with what it does not know: `StreamWindow`,
// `SecondLink`, `Links`, `RequestFeed`, `Nodes`, `RefusedAnswers`, `PolicyWarnings`, `UpstreamStates`, `TimesAway`,
// `HeartbeatPace`, `ShortAnswers`, `DataBudgets`, `Metered` and `LegNumber`. A test compares them.

const NANOSECONDS_PER_S = 1e9;
const NO_HANDLER = 'the agent has not defined a callback for this operation';
const SYSTEMS: Readonly<Record<string, string>> = { win32: 'windows' };
const MACHINES: Readonly<Record<string, string>> = { x64: 'x86_64', arm64: 'aarch64', ia32: 'x86' };

/** Without empty members: half of a request, each time that a device comes back. */
function withoutEmpty(value: object): object {
  const said = Object.entries(value).map(([name, member]): [string, unknown] => {
    const isPlain = typeof member === 'object' && member !== null && !Array.isArray(member);
    return [name, isPlain ? withoutEmpty(member) : member];
  });
  return Object.fromEntries(said.filter(([, member]) => !isEmpty(member)));
}

function isEmpty(member: unknown): boolean {
  return typeof member === 'object' && member !== null ? Object.keys(member).length === 0 : !member;
}

export function authRequest(options: {
  authtoken: string;
  /** Of an earlier session; empty for the first. */
  clientId: string;
  version: string;
  metadata: string;
  heartbeatIntervalS: number;
  heartbeatToleranceS: number;
  hasBudget: boolean;
  isMetered: boolean;
  /** Above 0 for a session beside the first one. */
  number: number;
}): object {
  const { version } = options;
  const { clientId: ClientId } = options;
  return {
    Version: ['3', '2'],
    ClientId,
    Extra: withoutEmpty({
      OS: SYSTEMS[process.platform] ?? process.platform,
      Arch: MACHINES[process.arch] ?? process.arch,
      AuthToken: options.authtoken,
      Version: version,
      Hostname: '',
      Metadata: options.metadata,
      Cookie: '',
      HeartbeatInterval: options.heartbeatIntervalS * NANOSECONDS_PER_S,
      HeartbeatTolerance: options.heartbeatToleranceS * NANOSECONDS_PER_S,
      ProxyType: '',
      MutualTLS: false,
      ServiceRun: false,
      ConfigVersion: '',
      CustomInterface: false,
      CustomCAs: false,
      ClientType: CLIENT_TYPE,
      StreamWindow: LARGEST_WINDOW,
      SecondLink: true,
      Links: MOST_LINKS,
      RequestFeed: true,
      Nodes: true,
      RefusedAnswers: true,
      PolicyWarnings: true,
      UpstreamStates: true,
      TimesAway: true,
      HeartbeatPace: true,
      ShortAnswers: true,
      DataBudgets: options.hasBudget,
      Metered: options.isMetered,
      LegNumber: options.number,
    }),
  };
}

export const NOT_SUPPORTED = { Error: NO_HANDLER };

export function bindRequest(request: EndpointRequest): object {
  const { binding, app_protocol, pooling, metadata } = request.options ?? {};
  return {
    Proto: request.protocol === 'http' ? 'https' : request.protocol,
    ForwardsTo: request.forwardsTo,
    ...(app_protocol !== undefined && { ForwardsProto: app_protocol }),
    // Gateways expect it, even when it says nothing.
    Opts: withoutEmpty(optionsOf(request)),
    Extra: withoutEmpty({
      Metadata: metadata,
      Bindings: binding === undefined ? [] : [binding],
      PoolingEnabled: pooling === true,
    }),
  };
}

function optionsOf({ protocol, domain = '', trafficPolicy, options }: EndpointRequest): object {
  const common = {
    ProxyProto: Number(options?.proxy_proto ?? 0),
    IPRestriction: null,
    TrafficPolicy: policyText(trafficPolicy),
  };
  if (protocol === 'tcp') return { Addr: domain, ...common };
  const named = { Domain: domain, Hostname: '', Subdomain: '', ...common };
  if (protocol === 'tls') {
    return { ...named, MutualTLSAtAgent: false, MutualTLSAtEdge: null, TLSTermination: null };
  }
  return {
    ...named,
    Auth: '',
    HostHeaderRewrite: false,
    LocalUrlScheme: null,
    Compression: null,
    CircuitBreaker: null,
    BasicAuth: null,
    OAuth: null,
    OIDC: null,
    WebhookVerification: null,
    MutualTLSCA: null,
    RequestHeaders: null,
    ResponseHeaders: null,
    WebsocketTCPConverter: null,
    UserAgentFilter: null,
  };
}

/** Without empty members, as {@link withoutEmpty}; null without rules. */
export function policyText(policy: TrafficPolicyDocument | undefined): string | null {
  const phases = Object.entries(policy ?? {}).filter(([, rules]) => rules.length > 0);
  const isSaid = (name: string, member: unknown) => name !== 'expressions' || !isEmpty(member);
  const said = (rule: object) =>
    Object.fromEntries(Object.entries(rule).filter(([name, member]) => isSaid(name, member)));
  return phases.length === 0
    ? null
    : JSON.stringify(Object.fromEntries(phases.map(([phase, rules]) => [phase, rules.map(said)])));
}

/** Between two reports of one upstream, in milliseconds. */
const REACH_MS = { default: 1_000, metered: 30_000 };

/**
 * Reports whether an upstream is down until the signal aborts: first if it is, then each change that lasts.
 *
 * @param send resolves when the gateway knows
 * @returns ends it
 */
export function reportReach(
  upstream: EndpointUpstream,
  send: (isDown: boolean) => Promise<unknown>,
  {
    clock,
    signal,
    pace = { kind: 'default' },
  }: { clock: Clock; signal: AbortSignal; pace?: { readonly kind: LinkKind } },
): (() => void) | undefined {
  let isDown = false;
  let reported = false;
  let isReporting = false;
  const report = async () => {
    if (isReporting) return;
    isReporting = true;
    try {
      while (reported !== isDown) {
        const sent = isDown;
        await send(sent);
        reported = sent;
        await clock.sleep(REACH_MS[pace.kind], signal);
      }
    } finally {
      isReporting = false;
    }
  };
  return upstream.watchReach?.((isReachable) => {
    isDown = !isReachable;
    // The session has ended, and the next one reports it again.
    report().catch(() => {});
  });
}

const LINE_BREAK = 0x0a;

/**
 * Asks the gateway for reports of the requests to an endpoint.
 *
 * @returns ends it
 */
export function watchRequests(connection: Connection, id: string, watcher: RequestWatcher): () => void {
  const channel = connection.channel();
  channel.write(Buffer.concat([streamPrefix(StreamType.requests), Buffer.from(JSON.stringify({ Id: id }))]));
  let isOver = false;
  const end = () => {
    if (isOver) return;
    isOver = true;
    // Not with a reset, which gateways count.
    channel.end();
    watcher.onEnd();
  };
  channel.receiver = new LineReader((line) => isOver || watcher.onLine(line), end);
  connection.open(channel);
  return () => {
    isOver = true;
    channel.end();
  };
}

/** Splits a stream into lines. A line that is too long ends it. */
export class LineReader implements ChannelReceiver {
  readonly #line = new ByteQueue(0);
  #length = 0;

  constructor(
    private readonly onLine: (line: string) => void,
    private readonly onOver: () => void,
  ) {}

  onData(payload: Buffer): void {
    let from = 0;
    for (let to = payload.indexOf(LINE_BREAK); to !== -1; to = payload.indexOf(LINE_BREAK, from)) {
      this.#keep(payload.subarray(from, to));
      from = to + 1;
      const line = Buffer.concat(this.#line.take(this.#line.length)).toString();
      this.#length = 0;
      this.onLine(line);
    }
    if (from < payload.length) this.#keep(payload.subarray(from));
    if (this.#length <= MAX_LINE) return;
    this.#line.clear();
    this.onOver();
  }

  onEnd(): void {
    this.onOver();
  }

  onClosed(): void {
    this.onOver();
  }

  #keep(piece: Buffer): void {
    this.#length += piece.length;
    // Copied, so that nothing larger is kept.
    if (this.#length <= MAX_LINE) this.#line.push(Buffer.from(piece));
  }
}
