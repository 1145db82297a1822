import { type Clock, systemClock } from '../lib/clock.ts';
import { fetchDocument } from './fetch-document.ts';
import { PolicyState } from './state/policy-state.ts';

/** A rule of an IP policy. */
export interface IpRule {
  readonly cidr: string;
  readonly action: 'allow' | 'deny';
}

/** A line that the action log writes. */
export interface PolicyLogEntry {
  readonly endpointId: string;
  readonly clientIp: string;
  /** Phase and rule. */
  readonly place: string;
  readonly metadata: Readonly<Record<string, unknown>>;
}

/** Something of a policy that did not work while it ran. */
export interface PolicyTrouble {
  /** Phase, rule and expression or action. */
  readonly place: string;
  readonly code: string;
  /** Names what was missing, never the value of anything. */
  readonly message: string;
  /** How often it happened since it was last told. */
  readonly times: number;
  /** What was thrown; undefined for an expression without a value. */
  readonly cause: unknown;
}

/** What policies need of the world around them. */
export interface PolicyPorts {
  /** For limits: rate-limit and circuit-breaker. */
  readonly clock: Clock;
  /** Milliseconds since 1970. */
  wallClock(): number;
  /** What outlives a policy that is compiled anew: one object for an endpoint's URL. */
  readonly state: PolicyState;
  /**
   * The rules of all these IP policies, as they are now. The list is taken for unchanged as long as it
   * is the same object.
   *
   * @returns null when one of the policies does not exist
   */
  ipPolicies(ids: readonly string[]): readonly IpRule[] | null;
  /** @returns null when there is no such secret */
  secret(vault: string, name: string): string | null;
  /**
   * Fetches a key set or a certificate from where a policy says.
   *
   * @throws Error when it cannot be had in time, or is longer than `maxBytes`
   */
  fetch(url: string, maxBytes: number): Promise<Buffer>;
  /** Receives what the action log writes. */
  onLog(entry: PolicyLogEntry): void;
  /** Receives failures, at most once a minute for each place. */
  onTrouble(trouble: PolicyTrouble): void;
}

/** Ports that lead nowhere but to the system's clock and the network. */
export function standalonePorts(): PolicyPorts {
  return {
    clock: systemClock,
    wallClock: Date.now,
    state: new PolicyState(),
    ipPolicies: () => null,
    secret: () => null,
    fetch: fetchDocument,
    onLog: () => {},
    onTrouble: () => {},
  };
}
