/** Types that the entry for embedding takes from schemas. The package of the agent has interfaces in their place. */
import type { z } from 'zod';
import type { TunnelChange, TunnelRequest } from './tunnels/tunnel.ts';

export type { CreatedTunnel, TunnelDetail } from './api/agent-operations.ts';
export type { StatusReport } from './api/status-report.ts';

export type NewTunnel = z.input<typeof TunnelRequest>;
export type ChangedTunnel = z.input<typeof TunnelChange>;
