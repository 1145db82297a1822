import { FrameAllowance } from '../../agent-protocol/connection-limits.ts';
import { BoundedMap } from '../../lib/bounded-map.ts';
import { clientNetwork } from '../../lib/network/ip-address.ts';

const MAX_REMEMBERED = 10_000;

/**
 * The allowances of agents for frames that come to nothing. They belong to an authtoken at one network, so that reconnecting
 * does not renew them; agents elsewhere may have the same authtoken.
 */
export class UselessFrames {
  readonly #allowances = new BoundedMap<string, FrameAllowance>(MAX_REMEMBERED);

  of(credentialId: string, address: string): FrameAllowance {
    const key = `${credentialId} ${clientNetwork(address)}`;
    const allowance = this.#allowances.get(key) ?? new FrameAllowance();
    this.#allowances.set(key, allowance);
    return allowance;
  }
}
