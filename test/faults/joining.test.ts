import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it, onTestFinished } from 'vitest';
import { createEnrolmentKey, joinCode } from '../../src/gateway/devices/invite.ts';
import { gatewayDomains } from '../../src/gateway/endpoints/domain-names.ts';
import { openGatewayStore } from '../../src/gateway/store/open-gateway-store.ts';
import { EnrolmentKeyCreate } from '../../src/management/resources/enrolment.ts';
import { AgentProcess } from '../support/agent-process.ts';
import { GatewayProcess } from '../support/gateway-process.ts';
import { measured } from '../support/measured.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { until } from '../support/until.ts';
import type { Crew } from './fleet-agents.ts';
import { rounds } from './rounds.ts';

const AGENTS = rounds({ short: 8, full: 1000 });
const PROCESSES = rounds({ short: 2, full: 4 });
const CREW = fileURLToPath(new URL('../../build/faults/fleet-agents.js', import.meta.url));
const LIMIT_MS = 5 * 60_000;

it(`${AGENTS} agents join with one code within five minutes, although gateway and agents are killed meanwhile`, async () => {
  const folder = temporaryFolder();
  let secret = '';
  const body = EnrolmentKeyCreate.parse({ site: '*.site.localhost', max_uses: AGENTS });
  const gateway = await GatewayProcess.start(
    folder,
    { GATEWAY_MAX_SESSIONS: String(2 * AGENTS) },
    {
      prepare: (store) => {
        secret = createEnrolmentKey(store, gatewayDomains('localhost'), body).secret;
      },
    },
  );
  onTestFinished(() => gateway.kill());
  const origin = `https://api.localhost:${gateway.httpsPort}`;
  const code = joinCode(
    { origin, isProxied: false, caPem: readFileSync(gateway.caFile, 'utf8'), publicNames: 'none' },
    secret,
  );
  const store = openGatewayStore({ dataDir: join(folder, 'data'), encryptionKey: null });
  onTestFinished(() => store.database.close());
  const devices = () => store.devices.page(null, 2 * AGENTS);

  const env = {
    AGENT_PORT: '0',
    DEFAULT_POLICIES: fileURLToPath(new URL('../../defaults/policies.json', import.meta.url)),
  };
  const began = performance.now();
  const crews = Array.from({ length: PROCESSES }, (_, i) => {
    const places = Array.from({ length: AGENTS / PROCESSES }, (_each, j) => join(folder, `device-${i}-${j}`));
    return { code, folders: places, env } satisfies Crew;
  });
  const start = (crew: Crew) => AgentProcess.run(CREW, [JSON.stringify(crew)], folder);
  const running = crews.map(start);
  onTestFinished(async () => void (await Promise.all(running.map((crew) => crew.end('SIGKILL')))));
  await until(() => devices().length >= AGENTS / 4, 'a quarter has enrolled', { withinMs: LIMIT_MS, everyMs: 20 });
  await gateway.restart();
  await until(() => devices().length >= AGENTS / 2, 'half have enrolled', { withinMs: LIMIT_MS, everyMs: 20 });
  await running[0]?.end('SIGKILL');
  running[0] = start(crews[0] as Crew);

  const online = () => running.reduce((sum, { lines }) => sum + onlineAmong(lines), 0);
  await until(() => online() >= AGENTS, `${AGENTS} agents online`, { withinMs: LIMIT_MS, everyMs: 50 });
  const tookMs = Math.round(performance.now() - began);
  const names = devices().map(({ name }) => name);
  expect([names.length, new Set(names).size]).toEqual([AGENTS, AGENTS]);
  expect(store.enrolmentKeys.page(null, 9)).toMatchObject([{ uses: AGENTS }]);
  expect(tookMs).toBeLessThan(LIMIT_MS);
  measured({
    fault: `${AGENTS} agents that join with one code; gateway and a quarter of them killed`,
    tried: AGENTS,
    note: `all online after ${(tookMs / 1000).toFixed(1)} s`,
  });
}, 900_000);

/** Those that were online once; after the gateway's restart, they come online again. */
function onlineAmong(lines: AgentProcess['lines']): number {
  return new Set(lines.filter(({ msg }) => msg === 'remote API online').map(({ agent }) => agent)).size;
}
