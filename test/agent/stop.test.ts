import { once } from 'node:events';
import net from 'node:net';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { startAgent } from '../../src/agent/agent.ts';
import { runtimePath } from '../../src/lib/files/runtime-folder.ts';
import { loadSettings } from '../../src/settings/agent-settings.ts';
import { recordingLog } from '../support/silent-log.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const TOKEN = 'a-token-of-my-own';

/** A request that never sends its body; resolves once the agent has accepted it, to when its connection ends. */
async function hangOn(address: net.NetConnectOpts): Promise<{ ended: Promise<number> }> {
  const socket = net.connect(address).on('error', () => {});
  socket.write(
    `POST /tunnels HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${TOKEN}\r\n` +
      'Content-Type: application/json\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n',
  );
  await once(socket, 'data');
  return { ended: new Promise((resolve) => socket.once('close', () => resolve(performance.now()))) };
}

it('a stopping agent gives local and remote requests the same grace time, concurrently', async () => {
  const folder = temporaryFolder();
  const { log, lines } = recordingLog();
  const env = { DATA_DIR: folder, AGENT_PORT: '0', GATEWAY_HTTP_PORT: '0', GATEWAY_HTTPS_PORT: '0' };
  const agent = await startAgent(loadSettings({ ...env, AGENT_API_TOKEN: TOKEN }, folder), log);
  await agent.started;
  const api = new URL(String(lines.find(({ msg }) => msg === 'local API listening')?.url));
  const local = await hangOn({ host: api.hostname, port: Number(api.port) });
  const remote = await hangOn({ path: join(runtimePath(folder), 'api.sock') });
  const began = performance.now();
  await agent.stop();
  const ends = await Promise.all([local.ended, remote.ended]);
  expect(Math.min(...ends) - began).toBeGreaterThan(1_400);
  // One after another, the second would end 1.5 s later.
  expect(Math.max(...ends) - Math.min(...ends)).toBeLessThan(1_000);
});
