import { z } from 'zod';
import { Ref } from './members.ts';
import { UNKNOWN_ID } from './resource.ts';

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

export const tunnels = {
  name: 'tunnel',
  path: '/tunnels',
  idPrefix: 'tn_',
  listKey: 'tunnels',
  unknownIdCode: UNKNOWN_ID,
  answer: Tunnel,
};
