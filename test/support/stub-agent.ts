import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { join } from 'node:path';
import express, { json } from 'express';
import type { InspectionReport, RequestSummary } from '../../src/agent/api/inspection/inspection-reports.ts';
import type { FeedSnapshot, FeedTunnel } from '../../src/agent/api/page/page-routes.ts';
import { eventText } from '../../src/lib/http/event-streams.ts';
import { staticSite } from '../../src/lib/http/static-site.ts';

/** An answer of the API: JSON, or an error. */
type Answer = object | ((path: string, body: unknown, method: string) => object | Promise<object>);

/** Serves the device's page with data that a test makes up, for states that a real agent hardly gets into. */
export interface StubAgent {
  readonly url: string;
  /** Sends an event to all feeds whose path ends so. */
  send(path: '/page/events' | '/requests/events', name: string, data: object): void;
  /** Ends all connections, and accepts no more until it is up again. */
  down(): Promise<void>;
  up(): Promise<void>;
  close(): Promise<void>;
}

export interface StubAnswers {
  /** The first event of the feeds. */
  snapshot: FeedSnapshot;
  requests?: { inspection: InspectionReport; requests: readonly RequestSummary[] };
  /** All other answers, by the end of their path. */
  others?: Readonly<Record<string, Answer>>;
}

export async function startStubAgent({ snapshot, requests, others = {} }: StubAnswers): Promise<StubAgent> {
  const app = express();
  app.use(staticSite(join(import.meta.dirname, '../../dist/web'), 'device'), json());
  const feeds = new Map<ServerResponse, string>();
  app.get('/page/session', (_req, res) => void res.json({ access: 'open' }));
  app.use(async (req, res) => {
    const path = decodeURIComponent(req.path);
    if (path.endsWith('/events') && req.method === 'GET') {
      feeds.set(res, path);
      res.once('close', () => feeds.delete(res));
      res.setHeader('Content-Type', 'text/event-stream');
      res.write(eventText('snapshot', path === '/page/events' ? snapshot : (requests ?? {})));
      return;
    }
    const found = Object.entries(others).find(([end]) => path.endsWith(end))?.[1] ?? {};
    const answer = await (typeof found === 'function' ? found(req.url, req.body, req.method) : found);
    res.status('error_code' in answer ? 422 : 200).json(answer);
  });
  const sockets = new Set<Socket>();
  let port = 0;
  let server = app.listen(0, '127.0.0.1');
  const up = async () => {
    if (port !== 0) server = app.listen(port, '127.0.0.1');
    server.on('connection', (socket) => {
      sockets.add(socket);
      socket.once('close', () => sockets.delete(socket));
    });
    await once(server, 'listening');
    port = (server.address() as AddressInfo).port;
  };
  const down = async () => {
    const closed = once(server, 'close');
    server.close();
    for (const socket of sockets) socket.destroy();
    await closed;
  };
  await up();
  return {
    url: `http://127.0.0.1:${port}`,
    send: (path, name, data) => {
      for (const [res, of] of feeds) if (of.endsWith(path)) res.write(eventText(name, data));
    },
    down,
    up,
    close: async () => {
      if (server.listening) await down();
    },
  };
}

const NOW = new Date().toISOString();

/** A tunnel that is online. */
export function stubTunnel(name: string, changes: Partial<FeedTunnel> = {}): FeedTunnel {
  return {
    id: name,
    url: `https://${name}.example.com`,
    url_part: name,
    protocol: 'http',
    forwards_to: 'localhost:8001',
    domain: `${name}.example.com`,
    own_policy: false,
    access: ['everyone'],
    status: 'online',
    since: NOW,
    last_error: null,
    upstream: { state: 'answers', since: NOW, reason: null },
    traffic: { connections: 3, requests: 7, bytes_in: 1_300, bytes_out: 119_000, last_at: NOW },
    created_at: NOW,
    ...changes,
  };
}

/** What an agent with these tunnels says first. */
export function stubSnapshot(tunnels: FeedTunnel[], changes: Partial<FeedSnapshot> = {}): FeedSnapshot {
  const online = tunnels.filter(({ status }) => status === 'online').length;
  return {
    name: 'cabinet-7',
    status: {
      version: '1.2.3',
      uptime_seconds: 4_000,
      session: { state: 'online', since: NOW, gateway: 'gateway.example.com:443', reconnects: 2, last_error: null },
      tunnels: {
        total: tunnels.length,
        online,
        degraded: 0,
        connecting: 0,
        offline: 0,
        failed: tunnels.length - online,
      },
      remote_api: null,
      data_budget: null,
      storage: { last_error: null },
      clock: { source: 'system', system_ahead_seconds: null, problem: null },
      addresses: {},
    },
    tunnels,
    log: [],
    ...changes,
  };
}

/** A captured request. */
export function stubRequest(id: number, changes: Partial<RequestSummary> = {}): RequestSummary {
  return {
    id: String(id),
    state: 'complete',
    kind: 'http',
    method: 'GET',
    path: `/path/${id}`,
    host: 'cam.example.com',
    status: 200,
    client: '203.0.113.5',
    started_at: NOW,
    duration_ms: 12.3,
    request_bytes: 0,
    response_bytes: 1_234,
    content_type: 'text/html',
    messages: 0,
    replay_of: null,
    answered_by: 'upstream',
    captured: true,
    error: null,
    ...changes,
  };
}

/** Inspection that is on. */
export function stubInspection(requests: number): InspectionReport {
  return {
    state: 'on',
    until: new Date(Date.now() + 900_000).toISOString(),
    requests,
    held_bytes: requests * 2_000,
    max_bytes: 16_777_216,
    max_body_bytes: 262_144,
    gateway_reports: 'on',
    gateway_missed: 0,
  };
}
