import type { LiveView } from '../../src/gateway/endpoints/live-view.ts';

export const nothingOnline: LiveView = {
  sessions: () => [],
  tunnels: () => [],
  endpoints: () => [],
  command: () => false,
  revoke: async () => {},
};
