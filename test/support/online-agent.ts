import type { LiveEndpoint, LiveSession, LiveTunnel } from '../../src/gateway/endpoints/live-view.ts';

const KSUID = '32ELFeTyzStvllGupngXcSO5GUy';
const STARTED = '2025-09-04T10:11:22Z';

/** The session of an online agent, for tests of the management API without a real agent. */
export const SESSION: LiveSession = {
  id: 'ts_32ELFiDEVP0MLVPxhqpmwXCxldd',
  agentVersion: '1.7.0',
  credentialId: 'cr_1',
  ip: '203.0.113.7',
  os: 'linux',
  startedAt: STARTED,
  transport: 'ngrok/2',
  metadata: '',
};

/** Its tunnel with `ENDPOINT`. */
export const TUNNEL: LiveTunnel = {
  id: `tn_${KSUID}`,
  sessionId: SESSION.id,
  endpointId: `ep_${KSUID}`,
  publicUrl: 'https://a.dev.example.com',
  proto: 'https',
  labels: null,
  startedAt: STARTED,
  metadata: '',
  forwardsTo: 'http://localhost:80',
};

export const LABELLED_TUNNEL: LiveTunnel = {
  ...TUNNEL,
  id: 'tn_32ELFeTyzStvllGupngXcSO5GUz',
  endpointId: null,
  publicUrl: null,
  proto: null,
  labels: { app: 'web', site: 'a' },
};

export const ENDPOINT: LiveEndpoint = {
  id: `ep_${KSUID}`,
  type: 'ephemeral',
  proto: 'https',
  host: 'a.dev.example.com',
  port: 443,
  url: 'https://a.dev.example.com',
  createdAt: STARTED,
  updatedAt: STARTED,
  metadata: '',
  description: '',
  name: '',
  tunnelId: TUNNEL.id,
  sessionId: SESSION.id,
  edgeId: null,
  credentialId: SESSION.credentialId,
  ownerId: 'bot_1',
  upstreamUrl: 'http://localhost:80',
  poolingEnabled: false,
  internal: false,
  traffic: null,
};

/** An endpoint whose policy takes share links. */
export const SHARED = {
  ...{ ...ENDPOINT, id: 'ep_shared', proto: 'https', host: 'shared.example.com', access: ['link'] as const },
  url: 'https://shared.example.com',
};
