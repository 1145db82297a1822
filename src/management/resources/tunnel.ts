import { z } from 'zod';
import { DeviceRef, defineResource, orNull, Ref } from './resource.ts';

/** An endpoint that an agent has bound. Members that do not apply are missing. */
export const Tunnel = z.object({
  id: z.string(),
  public_url: z.string().optional(),
  started_at: z.string(),
  metadata: z.string().optional(),
  proto: z.string().optional(),
  region: z.string().optional(),
  forwards_to: z.string().optional(),
  tunnel_session: Ref,
  endpoint: Ref.optional(),
  labels: z.record(z.string(), z.string()).optional(),
  backends: z.array(Ref).optional(),
});
export interface Tunnel extends z.output<typeof Tunnel> {
  /** Missing for labelled tunnels, which have no URL of their own. */
  public_url?: string | undefined;
  /** The endpoint of the tunnel's own URL. */
  endpoint?: Ref | undefined;
  /** The tunnel groups that a labelled tunnel belongs to. */
  backends?: Ref[] | undefined;
}

export const tunnels = defineResource({
  name: 'tunnel',
  path: '/tunnels',
  idPrefix: 'tn_',
  eventName: null,
  answer: Tunnel,
});

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

export const tunnelSessions = defineResource({
  name: 'tunnel session',
  path: '/tunnel_sessions',
  idPrefix: 'ts_',
  eventName: null,
  answer: TunnelSession,
});
