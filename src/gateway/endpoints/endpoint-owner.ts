import type { PortRange } from '../../lib/network/port-range.ts';
import type { Binding } from '../../management/resources/acl-rule.ts';

export interface OwnerCredential {
  /** `cr_…` */
  readonly id: string;
  /** `bot_…`, or null when it has no owner. */
  readonly ownerId: string | null;
  /**
   * Checks what {@link authorize} does, for a name that the agent asks for: a device can have some that its rules do not
   * name, and cannot have some that they do. @throws {RpcError}
   */
  authorizeWanted(binding: Binding): void;
  /** Keeps a name that is online for the device that asked for it, or from devices if rules allow it. @throws {RpcError} */
  keep(binding: Binding): Promise<void>;
  /** Checks the credential's rules as they are now. @throws {RpcError}: it is not allowed, or was revoked */
  authorize(binding: Binding): void;
  /** Whether the credential has rules now; without any, it may bind everything that is free. */
  hasRules(): boolean;
  /** The ranges of ports of a host that the rules name, from which a port can be chosen; empty without any. */
  portsOf(host: string): readonly PortRange[];
}

/** The agent session that has bound an endpoint, as the registry's users see it. */
export interface EndpointOwner {
  /** `ts_…`; further connections of the same agent have the same. */
  readonly id: string;
  readonly credential: OwnerCredential;
  readonly online: boolean;
  /** Probes the agent; resolves to false when it does not answer within a second. */
  isAlive(): Promise<boolean>;
  /** Takes an endpoint offline and notifies the agent why; `code` is an `ERR_NGROK_…`. */
  stopListener(endpoint: { readonly id: string }, message: string, code: string): void;
  /** Ends the session, and takes its endpoints offline before it returns. */
  end(reason: Error): void;
}

type CredentialOwner = Pick<OwnerCredential, 'id' | 'ownerId'>;

/** Whether two authtokens have one owner. An authtoken without an owner shares with itself only. */
export function haveOneOwner(one: CredentialOwner, other: CredentialOwner): boolean {
  return one.id === other.id || (one.ownerId !== null && one.ownerId === other.ownerId);
}

/**
 * Finds what makes room when all is taken: the newest of the authtoken with the most; null if the claimant would then have
 * as many, so that no authtoken can take all. @param held in order of age
 */
export function newestOfLargestShare<T>(
  held: Iterable<T>,
  credentialOf: (one: T) => string,
  claimantId: string,
  mayGo: (one: T) => boolean = () => true,
): T | null {
  const shares = new Map<string, T[]>();
  for (const one of held) {
    const id = credentialOf(one);
    const others = shares.get(id);
    if (others) others.push(one);
    else shares.set(id, [one]);
  }
  const own = shares.get(claimantId)?.length ?? 0;
  const larger = [...shares.values()].filter(({ length }) => length > own + 1);
  const going = larger.sort((one, other) => other.length - one.length).map((share) => share.findLast(mayGo));
  return going.find((one) => one !== undefined) ?? null;
}
