import { RpcError } from '../../agent-protocol/rpc.ts';
import { Repeats } from '../../lib/log/repeats.ts';
import { clientNetwork } from '../../lib/network/ip-address.ts';
import type { GatewayContext } from '../context/gateway-context.ts';

/** The agent that was refused; before it has authenticated, only its address is known. */
interface RefusedAgent {
  address: string;
  /** `ts_…` */
  session?: string;
  /** `cr_…` */
  credential?: string;
}

/** Refuses an agent with the authtoken that its device had before it was revoked or rotated. */
export class FormerDeviceRefused extends RpcError {
  constructor(
    refusal: RpcError,
    readonly device: { readonly id: string; readonly name: string; readonly status: string },
  ) {
    super(refusal.code, refusal.message);
  }
}

/** Counts refused requests of agents, and logs them, once a minute for each agent and code, because agents retry. */
export class RefusalLog {
  readonly #repeats = new Repeats();

  constructor(private readonly context: Pick<GatewayContext, 'counters' | 'activity' | 'log'>) {}

  /** Agents of revoked devices are not counted: they try until somebody stops them, and nothing is wrong. */
  session(agent: RefusedAgent, error: unknown): void {
    if (!(error instanceof FormerDeviceRefused && error.device.status === 'revoked'))
      this.#count('sessionsRefused', error);
    this.#warn('agent', agent, error);
  }

  endpoint(agent: RefusedAgent, error: unknown): void {
    this.#count('bindsRefused', error);
    this.#warn('endpoint', agent, error);
  }

  /** A further link of a session was refused; the session goes on without it. */
  link(agent: RefusedAgent, error: unknown): void {
    this.#warn('link', agent, error);
  }

  #count(which: 'sessionsRefused' | 'bindsRefused', error: unknown): void {
    const { counters } = this.context;
    counters.refused(counters[which], error);
  }

  /** Other errors are bugs, which are logged elsewhere. */
  #warn(what: 'agent' | 'endpoint' | 'link', agent: RefusedAgent, error: unknown): void {
    if (!(error instanceof RpcError)) return;
    const { address, session, credential } = agent;
    const { id: device, name } = error instanceof FormerDeviceRefused ? error.device : {};
    const times = this.#repeats.timesDue(`${credential ?? device ?? clientNetwork(address)} ${error.code}`);
    if (times === null) return;
    const facts = { address, session, credential, device, name, code: error.code, reason: error.message, times };
    const { log } = this.context;
    if (what === 'agent') log.warn(facts, 'agent refused');
    else if (what === 'endpoint') log.warn(facts, 'endpoint refused');
    else log.warn(facts, 'further connection refused');
  }
}
