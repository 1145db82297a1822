import type { AuthRequest } from '../../agent-protocol/messages.ts';

/** What is known of the agent at the other end, in its own words. */
export interface AgentInfo {
  clientType: string;
  version: string;
  os: string;
  metadata: string;
  /** Identifies the agent's process, when its metadata names it: `{"instance": "…"}`. */
  instance: string | null;
  /** Above 0 for a further connection of the same agent. */
  leg: number;
}

/** What an agent says of itself when it authenticates. */
export function agentInfo({ Extra: extra }: AuthRequest): AgentInfo {
  return {
    clientType: extra.clienttype,
    version: extra.version,
    os: extra.os,
    metadata: extra.metadata,
    instance: instanceOf(extra.metadata),
    leg: extra.legnumber,
  };
}

function instanceOf(metadata: string): string | null {
  if (!metadata.startsWith('{')) return null;
  try {
    const { instance } = JSON.parse(metadata) as { instance?: unknown };
    return typeof instance === 'string' && instance !== '' ? instance : null;
  } catch {
    // Metadata is the agent's own; that it is no JSON means only that there is no instance in it.
    return null;
  }
}
