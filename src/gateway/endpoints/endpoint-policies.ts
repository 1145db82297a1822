import type { Log } from '../../lib/log.ts';
import { compiledLater } from '../../traffic-policy/compiled-policy.ts';
import { type CompiledPolicy, compilePolicy, loadFor, NO_POLICY } from '../../traffic-policy/engine.ts';
import { isEmptyFrame, type PolicyFrame } from '../../traffic-policy/policy-frame.ts';
import type { PolicyPorts } from '../../traffic-policy/ports.ts';
import { PolicyStates } from '../../traffic-policy/state/policy-state.ts';
import type { EndpointProtocol } from './endpoint.ts';

export interface EndpointPoliciesOptions {
  /** Looks up the rules of IP policies. */
  ipPolicies: PolicyPorts['ipPolicies'];
  /** Fetches what policies name; left out: from the public internet. */
  fetch?: PolicyPorts['fetch'] | undefined;
  log: Log;
}

export interface PolicyTarget {
  protocol: EndpointProtocol;
  /** What is counted belongs to it. */
  url: string;
  /** Whether other endpoints' policies alone lead there. */
  internal: boolean;
  frame: PolicyFrame;
}

/** Makes the policies of endpoints ready to run; what they count outlives a reconnect of the agent. */
export class EndpointPolicies {
  readonly #options: EndpointPoliciesOptions;
  readonly #states = new PolicyStates();
  /** What was compiled last, and goes for every endpoint of its kind: an agent binds hundreds with one text. */
  #latest: { kind: string; policy: CompiledPolicy } | null = null;

  constructor(options: EndpointPoliciesOptions) {
    this.#options = options;
  }

  /** Loads what the policy and the rules around it need while they run. */
  load(text: string, frame?: PolicyFrame): Promise<void> {
    return loadFor(text + (frame ? JSON.stringify(frame) : ''));
  }

  /**
   * @param text as the agent sent it; empty for none
   * @param target whose policy it is; `frame` holds rules that run around it
   * @throws {PolicyRefused} when any part of it cannot be run
   */
  compile(text: string, target: PolicyTarget): CompiledPolicy {
    const { protocol, url, internal, frame } = target;
    const compile = () => compilePolicy(text, protocol, { ports: this.#portsOf(url), internal, frame });
    if (!isEmptyFrame(frame)) return compile();
    const kind = `${protocol} ${internal} ${text}`;
    // Each has a policy of its own all the same, for what is counted is the endpoint's.
    if (this.#latest?.kind === kind) return compiledLater(compile, this.#latest.policy);
    const policy = compile();
    if (policy !== NO_POLICY && !policy.mayExpire) this.#latest = { kind, policy };
    return policy;
  }

  #portsOf(url: string): Partial<PolicyPorts> {
    const { ipPolicies, fetch, log } = this.#options;
    return {
      state: this.#states.of(url),
      ipPolicies,
      ...(fetch && { fetch }),
      onLog: ({ endpointId, clientIp, place, metadata }) =>
        log.info({ url, endpoint: endpointId, client: clientIp, place, metadata }, 'a traffic policy logs'),
      onTrouble: ({ place, code, message, times, cause }) =>
        log.warn({ url, place, code, problem: message, times, err: cause }, 'a traffic policy did not work'),
    };
  }
}
