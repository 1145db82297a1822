import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { Connection } from '../../src/agent-protocol/connection.ts';
import { HeartbeatProbe } from '../../src/agent-protocol/heartbeat.ts';
import { StreamType, streamPrefix } from '../../src/agent-protocol/messages.ts';
import { persistTunnels } from '../faults/persisted-tunnels.ts';
import { AgentProcess } from '../support/agent-process.ts';
import { startHttpService } from '../support/http-service.ts';
import { processResources } from '../support/process-resources.ts';
import { GRANT, startRecordingGateway } from '../support/recording-gateway.ts';
import { NO_LINUX, unless } from '../support/requirements.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { until } from '../support/until.ts';

const STREAMS = 6000;
/** What an agent may take for what it has yet to pass on, and some more until garbage is collected. */
const MOST_MIB = 220;
const ENDPOINT = 'ep_hostile';

function streamHead(length: number, header: string): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(length));
  return Buffer.concat([streamPrefix(StreamType.proxy), bytes, Buffer.from(header)]);
}

const HEADER = JSON.stringify({ Id: ENDPOINT, ClientAddr: '203.0.113.7:1', Proto: 'https', EdgeType: '0' });
const FLOODS = [
  ['unfinished headers', streamHead(60_000, 'x'.repeat(50_000))],
  ['unfinished request heads', Buffer.concat([streamHead(HEADER.length, HEADER), Buffer.alloc(50_000, 'GET /')])],
  [
    'unfinished commands',
    Buffer.concat([streamPrefix(StreamType.update), Buffer.from(`{"Version":"${'x'.repeat(50_000)}`)]),
  ],
] as const;

/** Opens streams; resolves when the agent has read them, or has closed the connection. */
async function flood(connection: Connection, bytes: Buffer): Promise<void> {
  const channels = Array.from({ length: STREAMS }, () => connection.channel());
  for (const channel of channels) {
    channel.write(bytes);
    connection.open(channel);
  }
  await until(() => channels.every(({ memory }) => memory === 0), 'the flood is sent');
  const probe = connection.channel();
  const heartbeat = new HeartbeatProbe(probe);
  probe.receiver = heartbeat;
  probe.write(streamPrefix(StreamType.heartbeat));
  connection.open(probe);
  await heartbeat.ask(20_000);
}

describe('an agent with the native connector, whose gateway opens thousands of streams', () => {
  it.each(FLOODS)('with %s, keeps to its memory', unless(NO_LINUX), async (_what, bytes) => {
    const gateway = await startRecordingGateway((type, body) => ({ ...GRANT(type, body), Id: ENDPOINT }));
    const service = await startHttpService((_, res) => void res.end());
    onTestFinished(() => service.close());
    const folder = temporaryFolder();
    const caFile = join(folder, 'ca.pem');
    writeFileSync(caFile, gateway.cert);
    persistTunnels(folder, [{ domain: 'a.test', forwards_to: service.url, url: 'https://a.test' }]);
    const agent = AgentProcess.start(folder, {
      AGENT_CONNECTOR: 'native',
      NGROK_AUTHTOKEN: 'x',
      NGROK_SERVER_ADDR: gateway.address,
      NGROK_CA_CERT: caFile,
    });
    await until(() => gateway.requests.some(([type]) => type === StreamType.bind), 'the endpoint');
    const before = processResources(agent.child.pid).rssMib;
    await flood(gateway.connections[0] as Connection, bytes);
    expect(processResources(agent.child.pid).rssMib - before).toBeLessThan(MOST_MIB);
    const { status } = await fetch(`${await agent.api()}/healthz`);
    expect(status).toBe(200);
    await agent.end('SIGKILL');
  });
});
