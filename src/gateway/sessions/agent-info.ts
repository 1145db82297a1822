import type { AuthRequest } from '../../agent-protocol/messages.ts';

export interface AgentInfo {
  clientType: string;
  version: string;
  /** The program with its version, as operators see it. */
  program: string;
  os: string;
  metadata: string;
  /** Identifies the agent's process, when its metadata does: `{"instance": "…"}`. */
  instance: string | null;
  /** Above 0 for an additional connection of the same agent; `LegNumber` of the Go SDK. */
  connectionNumber: number;
}

export function agentInfo({ Extra: extra }: AuthRequest): AgentInfo {
  return {
    clientType: extra.clienttype,
    version: extra.version,
    program: `${extra.clienttype}/${extra.version}`,
    os: extra.os,
    metadata: extra.metadata,
    instance: instanceOf(extra.metadata),
    connectionNumber: extra.legnumber,
  };
}

function instanceOf(metadata: string): string | null {
  if (!metadata.startsWith('{')) return null;
  try {
    const { instance } = JSON.parse(metadata) as { instance?: unknown };
    return typeof instance === 'string' && instance !== '' ? instance : null;
  } catch {
    // Metadata is opaque: when it is not JSON, it names no instance.
    return null;
  }
}
