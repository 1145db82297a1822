import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { openGatewayStore } from '../../src/gateway/store/open-gateway-store.ts';
import { AgentProcess, deviceAgent } from '../support/agent-process.ts';
import { type Issued, issueCertificate } from '../support/certificates.ts';
import { CONNECTORS } from '../support/connectors.ts';
import { clockAt, NO_FAKETIME } from '../support/faked-clock.ts';
import { freePorts } from '../support/free-ports.ts';
import { certifyNames } from '../support/public-names.ts';
import { unless } from '../support/requirements.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { rounds } from './rounds.ts';

/** More than the validity of the certificates of the gateway's own CA. */
const YEAR = '-400d';
const HALF = '-200d';
/** The right clock of this machine. */
const NOW = '+0d';

const at = (offset: string) => (offset === NOW ? {} : clockAt(offset));

/** What changes meanwhile. */
const CHANGES = ['CA', 'public names', 'domain', 'authtokens'] as const;
type Change = (typeof CHANGES)[number];

let root: Issued;
beforeAll(async () => {
  root = await issueCertificate({ subject: 'CN=public CA', ca: true });
});

async function startSite() {
  const folder = temporaryFolder();
  const { first } = await freePorts(2);
  const ports = { GATEWAY_HTTPS_PORT: String(first), GATEWAY_HTTP_PORT: String(first + 1) };
  let env: Record<string, string> = { ...ports, GATEWAY_DOMAIN: 'old.localhost', GATEWAY_HOST: '0.0.0.0' };
  let running: AgentProcess | null = null;
  const stop = async () => void (await running?.end());
  onTestFinished(stop);
  return {
    folder,
    stop,
    async start(when: string, more: Record<string, string> = {}): Promise<void> {
      env = { ...env, ...more };
      running = AgentProcess.inTest(folder, { ...env, ...at(when) }, ['gateway']);
      await running.logged('gateway listening');
    },
    async command(when: string, ...args: string[]): Promise<string> {
      const { code, stdout, stderr } = await deviceAgent(['gateway', ...args], folder, { ...env, ...at(when) });
      expect(code, stderr).toBe(0);
      return stdout;
    },
  };
}

describe('devices that were away for a year', unless(NO_FAKETIME), () => {
  // Each of them alone at full length.
  const alone = rounds({ short: 0, full: CHANGES.length });
  const cases = [...CHANGES.slice(0, alone).map((each): Change[] => [each]), [...CHANGES]];
  it.each(cases.map((changes) => ({ changes, what: changes.join(', ') })))(
    'come back after changes of: $what',
    { timeout: 300_000 },
    async ({ changes }) => {
      const isChanged = (change: Change) => changes.includes(change);
      const site = await startSite();
      await site.start(YEAR);
      const invited = await site.command(YEAR, 'invite', '--site', '*.site.example.com', '--uses', '2', '--json');
      const { code } = JSON.parse(invited) as { code: string };
      const devices = CONNECTORS.map((kind) => {
        const folder = join(temporaryFolder(), kind);
        mkdirSync(folder);
        const start = async (when: string) => {
          const env = { AGENT_JOIN_CODE: code, AGENT_NAME: kind, AGENT_CONNECTOR: kind };
          const agent = AgentProcess.inTest(folder, { ...env, ...at(when) });
          await agent.logged('session online');
          return agent;
        };
        return { kind, start };
      });
      for (const { start } of devices) await (await start(YEAR)).end();
      await site.stop();

      if (isChanged('CA')) await site.command(HALF, 'ca', 'rotate');
      const domain = isChanged('domain') ? 'new.localhost' : 'old.localhost';
      const acme = isChanged('public names')
        ? { GATEWAY_ACME_DIRECTORY: 'https://127.0.0.1:1/', GATEWAY_ACME_OWN_NAMES: 'all' }
        : {};
      await site.start(NOW, { GATEWAY_DOMAIN: domain, ...acme });
      if (isChanged('public names')) {
        await site.stop();
        const store = openGatewayStore({ dataDir: join(site.folder, 'data'), encryptionKey: null });
        await certifyNames({ store }, root, [`api.${domain}`, `connect.${domain}`]);
        store.database.close();
        await site.start(NOW);
      }
      if (isChanged('authtokens')) for (const { kind } of devices) await site.command(NOW, 'devices', 'rotate', kind);

      const back = await Promise.all(devices.map(({ start }) => start(NOW)));
      if (!isChanged('CA')) return;
      // They follow, and come back when the CA that they joined with has ended.
      for (const agent of back) {
        agent.child.kill('SIGHUP');
        await agent.logged('certificate authorities of the gateway learned');
      }
      await expect
        .poll(async () => JSON.parse(await site.command(NOW, 'ca', '--json')).change.missing, { timeout: 30_000 })
        .toEqual([]);
      await site.command(NOW, 'ca', 'retire');
      for (const agent of back) await agent.end();
      await site.stop();
      await site.start(NOW);
      for (const { start } of devices) await start(NOW);
    },
  );
});
