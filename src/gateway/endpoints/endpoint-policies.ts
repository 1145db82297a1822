import { hash } from 'node:crypto';
import { BoundedMap } from '../../lib/bounded-map.ts';
import type { Log } from '../../lib/log/log.ts';
import { Repeats } from '../../lib/log/repeats.ts';
import { availableHeap, availableMemory, MemoryBudget } from '../../lib/memory-budget.ts';
import { isAddressOfUrl } from '../../lib/network/ip-address.ts';
import type { HandshakeParties } from '../../lib/network/metered-connection.ts';
import { type Clock, systemClock } from '../../lib/time/clock.ts';
import { type BucketRate, TokenBuckets } from '../../lib/time/token-bucket.ts';
import { isEmptyFrame, type PolicyFrame } from '../../traffic-policy/compile-rules.ts';
import { type CompiledPolicy, compileInTurns, compilePolicy, NO_POLICY } from '../../traffic-policy/engine.ts';
import type { PolicyPorts } from '../../traffic-policy/ports.ts';
import type { OutboundRequest, OutboundResponse } from '../../traffic-policy/public-request.ts';
import type { ReplacementThreads } from '../../traffic-policy/replacement-threads.ts';
import { PolicyStates } from '../../traffic-policy/state/policy-state.ts';
import { type ProcessorTime, ProcessorTimes } from '../../traffic-policy/state/processor-time.ts';
import { compiledLater } from '../../traffic-policy/steps.ts';
import type { EndpointProtocol } from './online-endpoint.ts';

/** Policies with warnings that are remembered, so that each is logged once. */
const MAX_WARNED = 10_000;
const LOGGED_WARNINGS = 10;

/** Characters of a policy whose compilation takes less than 20 ms, which its first client waits for. */
const MAX_DEFERRED = 4_096;

const MIB = 1_048_576;
/** Bytes that the policies of one payer may write to the log: the disk is everybody's. */
const LOGGED: BucketRate = { burst: 4 * MIB, perMs: 64 };
/** Of each line, besides what the policy has it say. */
const LINE_BYTES = 256;
/** Share of the machine's or container's memory for encoders of responses. */
const ENCODER_SHARE = 1 / 8;
const [LEAST_ENCODERS, MOST_ENCODERS] = [32 * MIB, 256 * MIB];
/** Share of the JavaScript heap for what policies hold for requests. */
const VALUE_SHARE = 1 / 16;
const [LEAST_VALUES, MOST_VALUES] = [16 * MIB, 256 * MIB];

export interface PolicyTarget {
  protocol: EndpointProtocol;
  /** Key of the policy's counters, such as rate limits. */
  url: string;
  /** Whose policy it is, and whose processor time it takes: the id of an authtoken, a TLS edge or a cloud endpoint. */
  payer: string;
  /** Whether only the policies of other endpoints can reach it. */
  internal: boolean;
  frame: PolicyFrame;
}

/** An endpoint that an agent has bound under a name that it asked for. */
export interface PolicyHolder {
  readonly url: string;
  readonly pooled: boolean;
  readonly credentialId: string;
  readonly address: string;
  readonly access: readonly string[];
}

/** Compiles the policies of endpoints. Their counters survive a reconnect of the agent. */
export class EndpointPolicies {
  readonly #states = new PolicyStates();
  /** The last compiled policy, which is valid for all endpoints of its kind: agents bind hundreds with one text. */
  #latest: { kind: string; policy: CompiledPolicy } | null = null;

  readonly #times: ProcessorTimes;
  readonly #warned = new BoundedMap<string, true>(MAX_WARNED);
  readonly #logged = new TokenBuckets(LOGGED);
  readonly #repeats: Repeats;
  readonly #clock: Clock;
  readonly #compressionTimes: ProcessorTimes;
  readonly #encoderMemory: MemoryBudget;
  readonly #valueMemory: MemoryBudget;

  constructor(
    private readonly options: {
      ipPolicies: PolicyPorts['ipPolicies'];
      hasCertificateAuthority?: PolicyPorts['hasCertificateAuthority'];
      knowledge?: PolicyPorts['knowledge'];
      /** Reads a secret for the policy of a payer, see {@link PolicyTarget}; left out: there are none. */
      secret?: (payer: string, vault: string, name: string) => string | null;
      /** Fetches the URLs that policies name; omitted: from the public internet. */
      fetch?: ((url: string, maxBytes: number, parties: HandshakeParties) => Promise<Buffer>) | undefined;
      /** Sends the requests of http-request; omitted: to the public internet. */
      request?: (outbound: OutboundRequest, signal: AbortSignal) => Promise<OutboundResponse>;
      /** Looks an IP address up, for variables; omitted: they are empty. */
      findAddress?: PolicyPorts['findAddress'];
      /** Finds and replaces in long texts; omitted: the event loop waits for them. */
      replacements?: ReplacementThreads;
      /** For the policies of a payer, see {@link PolicyTarget}; omitted: nobody can sign in. */
      signIn?: (payer: string) => PolicyPorts['signIn'];
      /** Opens share links for the policy of a payer, see {@link PolicyTarget}; omitted: there are none. */
      shareLinks?: (payer: string) => PolicyPorts['shareLinks'];
      /** Makes status pages for the policy of a payer, see {@link PolicyTarget}; left out: they are empty. */
      statusPage?: (payer: string) => PolicyPorts['statusPage'];
      /** The share of a processor core for policies of one authtoken, 0 to 1, and again for compression; omitted: all of it. */
      share?: number | undefined;
      /** Bytes for the encoders of compress-response of all authtokens; omitted: a share of the memory. */
      encoderMemory?: number;
      /** Bytes for what policies of all authtokens hold for requests; omitted: a share of the JavaScript heap. */
      valueMemory?: number;
      clock?: Clock;
      log: Log;
    },
  ) {
    const { share = 1, clock = systemClock } = options;
    this.#encoderMemory = new MemoryBudget(options.encoderMemory ?? defaultEncoderMemory());
    this.#valueMemory = new MemoryBudget(options.valueMemory ?? defaultValueMemory());
    this.#clock = clock;
    this.#repeats = new Repeats(() => clock.now());
    this.#times = new ProcessorTimes(share, clock);
    this.#compressionTimes = new ProcessorTimes(share, clock);
  }

  /** @param text as the agent sent it; empty for none @throws {PolicyRefused} when any part of it is invalid */
  async compile(text: string, target: PolicyTarget): Promise<CompiledPolicy> {
    const { protocol, internal, frame } = target;
    const options = () => ({ ports: this.#portsOf(target), internal, frame });
    if (!isEmptyFrame(frame)) return compileInTurns(text, protocol, options());
    const kind = `${protocol} ${internal} ${isAtAddress(target.url)} ${text}`;
    // Known to be valid, so it is compiled on first use. Not shared: counters belong to one endpoint.
    if (this.#latest?.kind === kind && text.length <= MAX_DEFERRED) {
      const compile = () => this.#times.of(target.payer).run(() => compilePolicy(text, protocol, options()));
      return compiledLater(compile, this.#latest.policy);
    }
    const policy = await compileInTurns(text, protocol, options());
    // What was wrong may be right the next time, such as when a person was added.
    const isLasting = !policy.mayExpire && policy.warnings.length === 0;
    if (policy !== NO_POLICY && isLasting) this.#latest = { kind, policy };
    return policy;
  }

  #portsOf({ url, payer }: PolicyTarget): Partial<PolicyPorts> & Pick<PolicyPorts, 'processorTime'> {
    const { ipPolicies, hasCertificateAuthority, secret, fetch, request, findAddress, signIn, log } = this.options;
    const { replacements: thread, shareLinks, statusPage, knowledge } = this.options;
    const processorTime = this.#times.of(payer);
    const partiesFor = (time: ProcessorTime): HandshakeParties => ({ owner: payer, charge: (ms) => time.spend(ms) });
    return {
      state: this.#states.of(url),
      processorTime,
      compressionTime: this.#compressionTimes.of(payer),
      encoderMemory: this.#encoderMemory.shareOf(payer),
      valueMemory: this.#valueMemory.shareOf(payer),
      ipPolicies,
      ...(hasCertificateAuthority && { hasCertificateAuthority }),
      ...(knowledge && { knowledge }),
      ...(secret && { secret: (vault, name) => secret(payer, vault, name) }),
      ...(fetch && { fetch: (url, maxBytes, time) => fetch(url, maxBytes, partiesFor(time)) }),
      ...(request && {
        request: (outbound, signal, time) => request({ ...outbound, parties: partiesFor(time) }, signal),
      }),
      ...(findAddress && { findAddress }),
      ...(thread && {
        replaceIn: (searched, replacements, { connection, clientLeft }) =>
          thread.replace(searched, replacements, processorTime.shareOf(connection), clientLeft),
      }),
      ...(signIn && { signIn: signIn(payer) }),
      ...(shareLinks && { shareLinks: shareLinks(payer) }),
      hasOwnCookies: !isAtAddress(url),
      ...(statusPage && { statusPage: statusPage(payer) }),
      onLog: ({ endpointId, clientIp, place, metadata }) => {
        if (this.#mayLog(payer, url, metadata))
          log.info({ url, endpoint: endpointId, client: clientIp, place, metadata }, 'traffic policy log');
      },
      onWarnings: (warnings) => this.#warn(payer, url, warnings),
      onTrouble: ({ place, code, message, times, cause }) =>
        log.warn({ url, place, code, problem: message, times, err: cause }, 'traffic policy failed'),
    };
  }

  /** Agents bind the same policy whenever they reconnect: each is reported once. */
  #warn(payer: string, url: string, warnings: readonly string[]): void {
    const what = hash('sha256', JSON.stringify([url, warnings]));
    const isKnown = this.#warned.get(what) !== undefined;
    this.#warned.set(what, true);
    if (isKnown) return;
    const problems = warnings.slice(0, LOGGED_WARNINGS);
    if (!this.#mayLog(payer, url, problems)) return;
    this.options.log.warn({ url, warnings: warnings.length, problems }, 'traffic policy is probably wrong');
  }

  /** Whether the policies of a payer may write another line, which has this content. */
  #mayLog(payer: string, url: string, content: unknown): boolean {
    const now = this.#clock.now();
    const bucket = this.#logged.of(payer, now);
    if (bucket.left(now) > 0) {
      bucket.take(LINE_BYTES + JSON.stringify(content).length, now);
      return true;
    }
    const times = this.#repeats.timesDue(payer);
    if (times !== null) this.options.log.warn({ url, times }, 'traffic policy logs too much: lines left out');
    return false;
  }
}

/** Whether clients reach an endpoint at a port of the gateway's IP address. */
function isAtAddress(url: string): boolean {
  return URL.canParse(url) && isAddressOfUrl(new URL(url).hostname);
}

function defaultEncoderMemory(): number {
  return Math.min(MOST_ENCODERS, Math.max(LEAST_ENCODERS, availableMemory() * ENCODER_SHARE));
}

function defaultValueMemory(): number {
  return Math.min(MOST_VALUES, Math.max(LEAST_VALUES, availableHeap() * VALUE_SHARE));
}
