/** What clients notice of agents and gateways that are restarted, killed or cut off, with real programs. */
import { setTimeout as delay } from 'node:timers/promises';
import { beforeEach, expect, it, onTestFinished } from 'vitest';
import type { ConnectorKind } from '../../src/settings/agent-settings.ts';
import { AgentProcess } from '../support/agent-process.ts';
import { FlakyProxy } from '../support/flaky-proxy.ts';
import { getPublic } from '../support/gateway.ts';
import { GatewayProcess } from '../support/gateway-process.ts';
import { type HttpService, startHttpService } from '../support/http-service.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { until } from '../support/until.ts';

const HOST = 'cam.localhost';
const PER_SECOND = 100;
const BEFORE_MS = 300;
const AFTER_MS = 500;
/** A request waits for 3 s at most; the rest is for a busy machine. */
const SLOWEST_MS = 3_500;

let service: HttpService;
let gateway: GatewayProcess;
let proxy: FlakyProxy;
beforeEach(async () => {
  service = await startHttpService((_req, res) => void res.end('here'));
  onTestFinished(() => service.close());
  gateway = await GatewayProcess.start(temporaryFolder(), { GATEWAY_DOMAIN: 'localhost' });
  onTestFinished(() => gateway.kill());
  proxy = await FlakyProxy.start(gateway.sessionAddress);
  onTestFinished(() => proxy.close());
});

/** An agent with a tunnel behind the proxy. @returns it, and what starts it again */
async function startAgent(connector: ConnectorKind) {
  const folder = temporaryFolder();
  const env = {
    NGROK_AUTHTOKEN: gateway.authtoken,
    NGROK_SERVER_ADDR: proxy.address,
    NGROK_CA_CERT: gateway.caFile,
    AGENT_CONNECTOR: connector,
  };
  const agent = AgentProcess.inTest(folder, env);
  const body = JSON.stringify({ protocol: 'http', forwards_to: service.url, domain: HOST });
  const headers = { 'content-type': 'application/json' };
  expect((await fetch(`${await agent.ready()}/tunnels`, { method: 'POST', body, headers })).status).toBe(200);
  return { agent, startAgain: () => AgentProcess.inTest(folder, env).ready() };
}

/** Asks all the time while something happens, each request on a connection of its own. @returns how often with which result */
async function askDuring(
  event: () => Promise<unknown>,
): Promise<{ counts: Record<string, number>; slowestMs: number }> {
  const counts: Record<string, number> = {};
  let [open, slowestMs] = [0, 0];
  const ask = async () => {
    const began = performance.now();
    open += 1;
    const result = await getPublic(gateway, `https://${HOST}/`).then(
      ({ status }) => String(status),
      (error: NodeJS.ErrnoException) => error.code ?? error.message,
    );
    open -= 1;
    counts[result] = (counts[result] ?? 0) + 1;
    slowestMs = Math.max(slowestMs, performance.now() - began);
  };
  const timer = setInterval(() => void ask(), 1000 / PER_SECOND);
  onTestFinished(() => clearInterval(timer));
  await delay(BEFORE_MS);
  await event();
  await delay(AFTER_MS);
  clearInterval(timer);
  await until(() => open === 0, 'the last answers');
  return { counts, slowestMs };
}

it.each([
  ['sdk', 'SIGTERM'],
  ['native', 'SIGKILL'],
] as const)('no request fails while an agent (%s) is restarted by %s', async (connector, signal) => {
  const { agent, startAgain } = await startAgent(connector);
  const { counts, slowestMs } = await askDuring(async () => {
    await agent.end(signal);
    await startAgain();
  });
  expect(counts).toEqual({ 200: expect.any(Number) });
  expect(slowestMs).toBeLessThan(SLOWEST_MS);
});

it.each(['sdk', 'native'] as const)('no request fails while the session of an agent (%s) is cut', async (connector) => {
  await startAgent(connector);
  const before = proxy.accepted;
  const { counts, slowestMs } = await askDuring(async () => {
    proxy.cut();
    await until(() => proxy.accepted > before, 'the next connection');
  });
  expect(counts).toEqual({ 200: expect.any(Number) });
  expect(slowestMs).toBeLessThan(SLOWEST_MS);
});

it('no request that reaches the gateway fails after it was killed, until its agent is back', async () => {
  await startAgent('native');
  const { counts, slowestMs } = await askDuring(async () => {
    await gateway.kill();
    await gateway.restart();
  });
  const { ECONNREFUSED: _refused, ECONNRESET: _cut, ...answered } = counts;
  expect(answered).toEqual({ 200: expect.any(Number) });
  expect(slowestMs).toBeLessThan(SLOWEST_MS);
});
