import { isDeepStrictEqual } from 'node:util';
import { AgentError } from '../errors/agent-error.ts';
import type { ChangedMembers, Tunnel } from './tunnel.ts';
import { specOfTunnel } from './tunnel-spec.ts';
import type { TunnelSupervisor } from './tunnel-supervisor.ts';

export interface TunnelChangeOptions {
  save: (tunnel: Tunnel) => Promise<void>;
  /** False for a tunnel that is being removed: it must not be opened again. */
  isActive: (supervisor: TunnelSupervisor) => boolean;
}

/**
 * Changes the policy or the upstream of a tunnel: closes its endpoint, opens it with the change, and saves that. If any of it
 * fails, the tunnel is as it was.
 *
 * @returns whether anything differs
 * @throws {ApiError} 400 for a policy that does not suit the protocol, 404 when the tunnel is deleted meanwhile, 500 when the
 *   change cannot be saved, 503 when the session is lost, and the gateway's refusals
 */
export async function changeTunnel(
  supervisor: TunnelSupervisor,
  change: Partial<ChangedMembers>,
  { save, isActive }: TunnelChangeOptions,
): Promise<boolean> {
  const { policy, forwards_to } = supervisor.tunnel;
  const before: ChangedMembers = { policy, forwards_to };
  const after: ChangedMembers = { ...before, ...change };
  specOfTunnel({ ...supervisor.tunnel, ...after });
  if (isDeepStrictEqual(after, before)) return false;
  const open = async (used: ChangedMembers) => {
    if (!isActive(supervisor)) throw new AgentError('ERR_AGENT_TUNNEL_NOT_FOUND', 'the tunnel has been deleted');
    supervisor.use(used);
    if ((await supervisor.reopen()) !== null) throw supervisor.bindError;
  };
  try {
    await open(after);
    await save(supervisor.tunnel);
    return true;
  } catch (error) {
    // Supervision retries when this fails too.
    await open(before).catch(() => {});
    throw error;
  } finally {
    // A removal that started meanwhile closes the endpoint, and restarts supervision if it fails.
    if (isActive(supervisor)) supervisor.start();
  }
}
