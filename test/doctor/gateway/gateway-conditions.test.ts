import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { conditionResults } from '../../../src/doctor/gateway/gateway-conditions.ts';
import { DatabaseUnwritable } from '../../../src/gateway/store/sql/database-problems.ts';
import { hasErrno } from '../../../src/lib/errors.ts';
import { loadGatewayServerSettings } from '../../../src/settings/gateway-settings.ts';
import { Disk, NO_MOUNT } from '../../support/disk.ts';
import { agentSession, getPublic, startTestGateway, type TestGateway } from '../../support/gateway.ts';
import { freePort } from '../../support/loopback.ts';
import { unless } from '../../support/requirements.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

/** What the doctor says of a gateway that runs. */
async function reported({ httpsPort, dataDir }: TestGateway): Promise<string[]> {
  const env = { GATEWAY_DOMAIN: 'localhost', GATEWAY_HTTPS_PORT: String(httpsPort), DATA_DIR: dataDir };
  const settings = loadGatewayServerSettings(env, temporaryFolder());
  const results = [await conditionResults(settings, 6)].flat();
  return results.map(({ status, detail }) => `${status}: ${detail}`);
}

it('names an endpoint whose upstream refuses connections, and the share of 5xx', async () => {
  const gateway = await startTestGateway();
  onTestFinished(() => gateway.close());
  const session = await agentSession(gateway).connect();
  onTestFinished(() => session.close());
  const listener = await session.httpEndpoint().domain('dead.localhost').listen(false);
  listener.forward(`http://127.0.0.1:${await freePort()}`).catch(() => {}); // ends with the session
  expect(await reported(gateway)).toEqual(['ok: the running gateway reports no problem']);
  for (let i = 0; i < 10; i += 1) await getPublic(gateway, String(listener.url()));
  expect(await reported(gateway)).toEqual([
    'failed: 100 % of the last 10 responses to clients were errors (5xx)',
    `failed: upstreams refuse connections or answer 5xx: ${listener.url()} (10 of the last 10 requests)`,
  ]);
});

it('names a full disk, which keeps no key for a command', unless(NO_MOUNT), async () => {
  const { path: dataDir } = Disk.mount('size=16m');
  const gateway = await startTestGateway({ dataDir });
  onTestFinished(() => gateway.close());
  fill(join(dataDir, 'full'));
  const { database } = gateway.store;
  const big = () => database.setFact('big', 'x'.repeat(1 << 22));
  await expect(database.write(big)).rejects.toThrow(DatabaseUnwritable);
  expect(await reported(gateway)).toEqual([expect.stringMatching(/^failed: .*(disk is full|nearly full: 0 MB free)$/)]);
});

function fill(file: string): void {
  try {
    for (;;) writeFileSync(file, Buffer.alloc(1 << 16), { flag: 'a' });
  } catch (error) {
    if (!hasErrno(error, 'ENOSPC')) throw error;
  }
}
