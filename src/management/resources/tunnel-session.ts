import { z } from 'zod';
import { DeviceRef, orNull, Ref } from './members.ts';
import { UNKNOWN_ID } from './resource.ts';

/** One authenticated connection of an agent. */
export const TunnelSession = z.object({
  id: z.string(),
  uri: z.string(),
  agent_version: z.string().default(''),
  credential: orNull(Ref),
  device: orNull(DeviceRef),
  ip: z.string(),
  os: z.string().default(''),
  region: z.string().default(''),
  started_at: z.string(),
  transport: z.string(),
  metadata: z.string().default(''),
});
export interface TunnelSession extends z.output<typeof TunnelSession> {
  /** The device that has the authtoken; null for other agents. */
  device: z.output<typeof DeviceRef> | null;
}

/** Agents choose their version, so there is nothing to ask for; ngrok's TypeScript client repeats the id. */
export const TunnelSessionUpdateBody = z.strictObject({ id: z.string().optional() });

export const tunnelSessions = {
  name: 'tunnel session',
  path: '/tunnel_sessions',
  idPrefix: 'ts_',
  listKey: 'tunnel_sessions',
  unknownIdCode: UNKNOWN_ID,
  answer: TunnelSession,
};
