import { z } from 'zod';
import {
  COMMON_ANSWER,
  DeviceRef,
  defineResource,
  labelFilter,
  listFilters,
  NO_REGION,
  orNull,
  Ref,
  siteFilter,
  UTC,
  versionFilter,
} from './resource.ts';

export const Tunnel = z
  .object({
    id: COMMON_ANSWER.id,
    public_url: z.string().optional().describe('Missing for labelled tunnels, which have no URL of their own.'),
    started_at: z.string().describe(`Since when it is online. ${UTC}`),
    metadata: z.string().optional().describe('A text for programs, as its agent sends it.'),
    proto: z.string().optional().describe('`http`, `https`, `tcp` or `tls`; missing for labelled tunnels.'),
    region: z.string().optional().describe(NO_REGION),
    forwards_to: z.string().optional().describe('The upstream, as its agent names it.'),
    tunnel_session: Ref.describe('The session of its agent.'),
    endpoint: Ref.optional().describe("The endpoint of the tunnel's own URL."),
    labels: z.record(z.string(), z.string()).optional().describe('The labels that a labelled tunnel has bound.'),
    backends: z.array(Ref).optional().describe('The tunnel groups that a labelled tunnel belongs to.'),
  })
  .describe('An endpoint that an agent has bound. Members that do not apply are missing.');
export type Tunnel = z.output<typeof Tunnel>;

export const tunnels = defineResource({
  name: 'tunnel',
  path: '/tunnels',
  idPrefix: 'tn_',
  eventName: null,
  answer: Tunnel,
});

export const TunnelSession = z
  .object({
    id: COMMON_ANSWER.id,
    uri: COMMON_ANSWER.uri,
    agent_version: z.string().default('').describe('The program and version of the agent, as it says.'),
    credential: orNull(Ref).describe('The authtoken of the session.'),
    device: orNull(DeviceRef).describe('The device that has the authtoken; null for other agents.'),
    ip: z.string().describe('The address from which the agent has connected.'),
    os: z.string().default('').describe('The operating system of the agent, as it says; may be empty.'),
    region: z.string().default('').describe(NO_REGION),
    started_at: z.string().describe(`When the agent connected. ${UTC}`),
    transport: z.string().describe('The protocol of the session, `ngrok/2`.'),
    metadata: z.string().default('').describe('A text for programs, as the agent sends it.'),
  })
  .describe('One authenticated connection of an agent.');
export type TunnelSession = z.output<typeof TunnelSession>;

/** Agents choose their version, so there is nothing to ask for; ngrok's TypeScript client repeats the id. */
export const TunnelSessionUpdateBody = z.strictObject({
  id: z.string().optional().describe('The id of the path again; ignored.'),
});

export const TunnelSessionFilters = listFilters(
  'id, address, version, system, metadata, authtoken or device',
  ['device', 'ip', 'agent_version', 'started_at'],
  {
    site: siteFilter('sessions of devices'),
    label: labelFilter('the device'),
    version: versionFilter('sessions whose agent'),
  },
);
export type TunnelSessionFilters = z.output<typeof TunnelSessionFilters>;

export const tunnelSessions = defineResource({
  name: 'tunnel session',
  path: '/tunnel_sessions',
  idPrefix: 'ts_',
  eventName: null,
  answer: TunnelSession,
  filters: TunnelSessionFilters,
});
