import { z } from 'zod';
import { DeviceRef, Ref } from './members.ts';
import { UNKNOWN_ID } from './resource.ts';

/** A public URL that is online. Members that do not apply are missing. */
export const Endpoint = z.object({
  id: z.string(),
  uri: z.string(),
  created_at: z.string(),
  updated_at: z.string().optional(),
  type: z.string(),
  proto: z.string(),
  scheme: z.string().optional(),
  hostport: z.string().optional(),
  host: z.string().optional(),
  port: z.int().optional(),
  url: z.string().optional(),
  public_url: z.string().optional(),
  region: z.string().optional(),
  metadata: z.string().optional(),
  description: z.string().optional(),
  name: z.string().optional(),
  domain: Ref.optional(),
  tunnel: Ref.optional(),
  tunnel_session: Ref.optional(),
  edge: Ref.optional(),
  principal: Ref.optional(),
  device: DeviceRef.optional(),
  bindings: z.array(z.string()).optional(),
  upstream_url: z.string().optional(),
  pooling_enabled: z.boolean().optional(),
});
export interface Endpoint extends z.output<typeof Endpoint> {
  /** `ephemeral` (bound by an agent), `edge` or `cloud`. */
  type: string;
  /** Deprecated alias of `url`. */
  public_url?: string | undefined;
  principal?: Ref | undefined;
  /** The device that has bound it. */
  device?: z.output<typeof DeviceRef> | undefined;
}

export const endpoints = {
  name: 'endpoint',
  path: '/endpoints',
  idPrefix: 'ep_',
  listKey: 'endpoints',
  unknownIdCode: UNKNOWN_ID,
  answer: Endpoint,
};
