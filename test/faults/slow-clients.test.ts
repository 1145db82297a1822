import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { connect } from 'node:tls';
import { expect, it, onTestFinished } from 'vitest';
import { AgentProcess } from '../support/agent-process.ts';
import { agentSettings, getPublic } from '../support/gateway.ts';
import { GatewayProcess } from '../support/gateway-process.ts';
import { serving } from '../support/loopback.ts';
import { measured } from '../support/measured.ts';
import { processResources } from '../support/process-resources.ts';
import { NO_LINUX, unless } from '../support/requirements.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { until } from '../support/until.ts';
import { persistTunnels } from './persisted-tunnels.ts';
import { rounds } from './rounds.ts';

const CLIENTS = rounds({ short: 24, full: 200 });
const HOST = 'slow.localhost';
const FILE = Buffer.alloc(4_194_304, 'x');
/** What a session may hold of data that others have yet to read is a quarter of 512 MiB at most; the rest is garbage. */
const MAX_GROWTH_MIB = 128 + 64;

it(`${CLIENTS} clients that read a kilobyte a second take little memory and hinder nobody`, {
  timeout: 60_000 + CLIENTS * 2_000,
  ...unless(NO_LINUX),
}, async () => {
  const folder = temporaryFolder();
  const gateway = await GatewayProcess.start(folder);
  onTestFinished(() => gateway.kill());
  const upstream = await startUpstream();
  const device = `${folder}/device`;
  const url = `https://${HOST}:${gateway.httpsPort}`;
  persistTunnels(device, [{ domain: HOST, forwards_to: `127.0.0.1:${upstream.port}`, url }]);
  const agent = AgentProcess.inTest(device, agentSettings(gateway));
  await agent.logged('tunnels online');

  const resident = () => ({
    agent: processResources(agent.child.pid).rssMib,
    gateway: processResources(gateway.process.child.pid).rssMib,
  });
  const before = resident();
  await Promise.all(Array.from({ length: CLIENTS }, () => startSlowClient(gateway.httpsPort)));
  await upstream.hasToWait();
  const from = performance.now();
  const { body } = await getPublic({ httpsPort: gateway.httpsPort, sessionCa: gateway.sessionCa }, `${url}/file`);
  const ms = Math.round(performance.now() - from);
  const after = resident();
  expect(body.length).toBe(FILE.length);
  const growth = { agent: after.agent - before.agent, gateway: after.gateway - before.gateway };
  const note = `4 MiB for another client take ${ms} ms; the agent grows by ${Math.round(growth.agent)} MiB, the gateway by ${Math.round(growth.gateway)} MiB`;
  measured({ fault: `${CLIENTS} clients that read a kilobyte a second`, tried: 0, note });
  expect(growth.agent).toBeLessThan(MAX_GROWTH_MIB);
  expect(growth.gateway).toBeLessThan(MAX_GROWTH_MIB);
});

/** Sends a file at `/file`, and elsewhere as much as the reader takes. */
async function startUpstream(): Promise<{ port: number; hasToWait: () => Promise<void> }> {
  let sent = 0;
  const piece = Buffer.alloc(65_536, 'x');
  const sendEndlessly = (response: ServerResponse) => {
    const more = () => {
      do sent += piece.length;
      while (response.write(piece));
    };
    response.on('drain', more);
    more();
  };
  const server = createServer((request, response) => {
    if (request.url === '/file') response.end(FILE);
    else sendEndlessly(response);
  });
  await serving(server);
  let before = -1;
  const waits = () => {
    const isStill = sent === before;
    before = sent;
    return isStill;
  };
  return {
    port: (server.address() as AddressInfo).port,
    hasToWait: () => until(waits, 'the upstream waits', { withinMs: 60_000 + CLIENTS * 1_000, everyMs: 1_000 }),
  };
}

async function startSlowClient(port: number): Promise<void> {
  const client = connect({ port, host: '127.0.0.1', servername: HOST, rejectUnauthorized: false });
  client.on('error', () => {});
  const reading = setInterval(() => client.read(1024), 1000);
  onTestFinished(() => {
    clearInterval(reading);
    client.destroy();
  });
  await once(client, 'secureConnect');
  client.write(`GET / HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`);
  await once(client, 'readable');
}
