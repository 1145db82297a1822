import { writeFileSync } from 'node:fs';
import { get } from 'node:https';
import ngrok from '@ngrok/ngrok';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { openForChanges } from '../../src/gateway/store/open-gateway-store.ts';
import { issueCredential } from '../../src/gateway/store/tokens.ts';
import { VERSION } from '../../src/packaged.ts';
import { persistTunnels } from '../faults/persisted-tunnels.ts';
import { AgentProcess } from '../support/agent-process.ts';
import { startBalancer } from '../support/balancer.ts';
import { FlakyProxy } from '../support/flaky-proxy.ts';
import { startHttpService } from '../support/http-service.ts';
import {
  beginUpdate,
  installProgram,
  NEWER_SCHEMA,
  publishOn,
  RELEASES,
  TRIAL,
  updated,
  updateLog,
} from '../support/machine-releases.ts';
import { NO_POSTGRES, PostgresServer } from '../support/postgres-server.ts';
import { unless } from '../support/requirements.ts';
import { publisherKey } from '../support/signed-release.ts';
import { silentLog } from '../support/silent-log.ts';
import { SystemdMachine } from '../support/systemd-machine.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { until } from '../support/until.ts';

const probe = await SystemdMachine.boot();
const NO_MACHINES = probe === null ? 'root, systemd and namespaces are required' : NO_POSTGRES;
const KEY = Buffer.alloc(32, 7).toString('base64');
const ADDRESSES = ['10.79.3.1:443', '10.79.3.2:443'];
/** What a version is whose gateway ends right after it has changed its copy of the database. */
const CRASHES = `grep -l '"gateway listening"' dist/*.js | xargs sed -i 's/"gateway listening"/(process.exit(1), "")/'`;

describe('gateways that share a database and update themselves', {
  timeout: 900_000,
  shuffle: false,
  ...unless(NO_MACHINES),
}, () => {
  const { key, keySet } = publisherKey();
  const machines: SystemdMachine[] = [];
  let database: PostgresServer;
  let caPem = '';
  const [one, two] = [() => machines[0] as SystemdMachine, () => machines[1] as SystemdMachine];
  const gateway = async (machine: SystemdMachine, ...args: string[]) => {
    const { stdout, stderr } = await machine.run('device-agent', 'gateway', ...args, '--json');
    if (stdout === '') throw new Error(stderr);
    return JSON.parse(stdout);
  };
  const nodes = async () =>
    (await gateway(one(), 'nodes')).map(({ address, state, version }: Record<string, string>) => [
      address,
      state,
      version,
    ]);
  const serving = (...versions: string[]) => versions.map((version, at) => [ADDRESSES[at], 'serving', version]);

  beforeAll(async () => {
    database = await PostgresServer.start();
    const second = await SystemdMachine.boot();
    machines.push(probe as SystemdMachine, second as SystemdMachine);
    await one().connect('10.79.3.1/30', two(), '10.79.3.2/30');
    for (const [at, machine] of machines.entries()) {
      const [address, host] = [`10.79.${at + 1}.2`, `10.79.${at + 1}.1`];
      await machine.connectToHost(`${address}/30`, `${host}/30`);
      const proxy = await FlakyProxy.start(database.address, host);
      await installProgram(machine, keySet);
      await machine.write('/etc/hosts', '127.0.0.1 localhost\n');
      await machine.run('rm', '-f', '/etc/resolv.conf');
      await machine.write(
        '/etc/device-agent-gateway/settings.env',
        'GATEWAY_DOMAIN=localhost\nGATEWAY_HOST=0.0.0.0\nGATEWAY_HTTPS_PORT=443\nGATEWAY_HTTP_PORT=80\nGATEWAY_SESSION_PORT=4443\n' +
          `GATEWAY_DATABASE_URL=${database.url(proxy.address)}\nGATEWAY_ENCRYPTION_KEY=${KEY}\n` +
          `GATEWAY_NODE_ADDRESS=${ADDRESSES[at]}\nAGENT_UPDATE=stable\nAGENT_UPDATE_FROM=${RELEASES}\n`,
      );
      const { code, stderr } = await machine.run('device-agent', 'service', 'install', '--gateway');
      expect([code, stderr], await machine.journal('device-agent-gateway')).toEqual([0, '']);
    }
    caPem = (await one().run('cat', '/var/lib/device-agent-gateway/gateway/ca.pem')).stdout;
  }, 300_000);
  afterAll(async () => {
    await Promise.all([probe, ...machines].map((machine) => machine?.end()));
    await database?.end();
  });

  const newAuthtoken = async () => {
    const { store, close } = await openForChanges(
      { dataDir: temporaryFolder(), encryptionKey: KEY, databaseUrl: database.url() },
      { older: 'upgrade', log: silentLog },
    );
    const { token } = await store.database.write(() => issueCredential(store, { acl: [] }));
    await close();
    return token;
  };

  /** A device whose tunnel answers `seen`. */
  const startDevice = async (domain: string, connector: 'sdk' | 'native') => {
    const token = await newAuthtoken();
    const balancer = await startBalancer(['10.79.1.2:4443', '10.79.2.2:4443']);
    onTestFinished(balancer.close);
    const upstream = await startHttpService((_, res) => res.end('seen'));
    onTestFinished(() => upstream.close());
    const folder = temporaryFolder();
    const { port } = new URL(upstream.url);
    persistTunnels(folder, [{ domain, forwards_to: `localhost:${port}`, url: `https://${domain}` }]);
    writeFileSync(`${folder}/ca.pem`, caPem);
    const agent = AgentProcess.start(folder, {
      ...{ NGROK_AUTHTOKEN: token, NGROK_SERVER_ADDR: balancer.address, NGROK_CA_CERT: `${folder}/ca.pem` },
      AGENT_CONNECTOR: connector,
    });
    onTestFinished(() => agent.end('SIGKILL').then(() => {}));
    await agent.ready();
    return agent;
  };

  /** An agent as others write it, which reconnects as its SDK does. */
  const startSdkAgent = async (domain: string) => {
    const balancer = await startBalancer(['10.79.1.2:4443', '10.79.2.2:4443']);
    onTestFinished(balancer.close);
    const upstream = await startHttpService((_, res) => res.end('seen'));
    onTestFinished(() => upstream.close());
    const builder = new ngrok.SessionBuilder().serverAddr(balancer.address).authtoken(await newAuthtoken());
    const session = await builder.caCert(Buffer.from(caPem)).connect();
    onTestFinished(() => session.close().catch(() => {}));
    const listener = await session.httpEndpoint().domain(domain).listen(false);
    listener.forward(upstream.url).catch(() => {});
  };

  /** Asks for a tunnel all the time, on a connection of its own each. @returns how often there was which answer, once it ends */
  const askAllTheTime = async (host: string) => {
    const balancer = await startBalancer(['10.79.1.2:443', '10.79.2.2:443']);
    const port = Number(balancer.address.split(':')[1]);
    const ask = () =>
      new Promise<string>((resolve) => {
        const target = { host: '127.0.0.1', port, servername: host, ca: caPem, headers: { host }, agent: false };
        get(target, (res) => resolve(res.resume() && String(res.statusCode))).on('error', () => resolve('no answer'));
      });
    await until(async () => (await ask()) === '200', `${host} answers`, { withinMs: 60_000, everyMs: 200 });
    let [isOver, slowestMs] = [false, 0];
    const counts: Record<string, number> = {};
    const asking = (async () => {
      while (!isOver) {
        const began = performance.now();
        const answer = await ask();
        counts[answer] = (counts[answer] ?? 0) + 1;
        slowestMs = Math.max(slowestMs, Math.round(performance.now() - began));
      }
    })();
    return async () => {
      isOver = true;
      await asking;
      balancer.close();
      return { counts, slowestMs };
    };
  };

  it('do so one after another, and tunnels stay online', async () => {
    await startDevice('sdk.localhost', 'sdk');
    await startDevice('native.localhost', 'native');
    await startSdkAgent('other.localhost');
    const names = ['sdk.localhost', 'native.localhost', 'other.localhost'];
    const ends: Awaited<ReturnType<typeof askAllTheTime>>[] = [];
    for (const name of names) ends.push(await askAllTheTime(name));
    for (const machine of machines) await publishOn(machine, key, '0.1.1');
    expect(await nodes()).toEqual(serving(VERSION, VERSION));

    // Whose turn it is, whenever it changes; and how many try a version at the same time.
    const trying = async () => {
      const states = await Promise.all(
        machines.map((machine) => machine.run('sh', '-c', `grep -s '"state"' ${TRIAL}`).then(({ stdout }) => stdout)),
      );
      return states.filter((state) => /trying|returning/.test(state)).length;
    };
    let most = 0;
    // One because somebody asks, the other one as the timer does it at night.
    const automatic = two()
      .run('systemctl', 'start', 'device-agent-update-check')
      .then(() => two().journal('device-agent-update-check'));
    const both = Promise.all([updated(one()), automatic]);
    let isOver = false;
    both.finally(() => {
      isOver = true;
    });
    while (!isOver) most = Math.max(most, await trying());
    const said = await both;
    expect(said.map((text) => text.includes(`updated from ${VERSION} to 0.1.1\n`))).toEqual([true, true]);
    expect(said.filter((text) => text.includes('waiting for its turn: the gateway 10.79.3.'))).toHaveLength(1);
    expect(most).toBe(1);
    expect(await nodes()).toEqual(serving('0.1.1', '0.1.1'));
    // Each agent moves twice or more; while it is away, requests wait for 3 s.
    for (const [at, end] of ends.entries()) {
      const { counts, slowestMs } = await end();
      const { '200': answered = 0, '503': away = 0, 'no answer': reset = 0, ...others } = counts;
      const found = `${answered} requests answered, ${away} with 503, ${reset} without an answer`;
      process.stdout.write(`  measured: ${names[at]}: ${found}; the slowest took ${slowestMs} ms\n`);
      // One may arrive in the moment in which a gateway closes its ports.
      expect([others, answered > 100, away < 10, reset < 2]).toEqual([{}, true, true, true]);
    }
    for (const machine of machines) {
      const log = await machine.journal('device-agent-gateway');
      expect(log).toContain('gateway updates itself');
    }
  });

  it('go back from a version that ends at its start, and the others do not try it', async () => {
    await startDevice('native.localhost', 'native');
    for (const machine of machines) await publishOn(machine, key, '0.1.2', `${NEWER_SCHEMA}; ${CRASHES}`);
    const updating = updated(one());
    await until(async () => (await one().run('grep', '-q', '"state": "trying"', TRIAL)).code === 0, 'the trial', {
      ...{ withinMs: 120_000, everyMs: 50 },
    });
    // The others accept changes meanwhile, which stay.
    expect(await two().run('device-agent', 'gateway', 'api-key', 'create', '--description', 'meanwhile')).toMatchObject(
      {
        code: 0,
      },
    );
    expect(await updating).toMatch(
      /went back from 0\.1\.2 to 0\.1\.1: it ended \d+ times after its start\nexit code 1/,
    );
    await until(async () => String(await nodes()) === String(serving('0.1.1', '0.1.1')), 'both serve', {
      withinMs: 30_000,
    });
    const keys = await gateway(one(), 'api-key', 'list');
    expect(keys.map(({ description }: { description: string }) => description)).toContain('meanwhile');
    expect((await one().run('ls', '/var/lib/device-agent-gateway/gateway')).stdout).not.toMatch(/newer|update-trial/);

    expect(await updated(two())).toMatch(
      /update refused: the gateway 10\.79\.3\.1:443 has given up version 0\.1\.2: it ended .*; to try it here: --to 0\.1\.2\nexit code 1/,
    );
    expect(await gateway(two(), 'nodes')).toMatchObject([
      { address: ADDRESSES[0], gave_up: { version: '0.1.2', reason: expect.stringContaining('it ended') } },
      { address: ADDRESSES[1] },
    ]);
    const { findings } = await gateway(two(), 'doctor');
    expect(findings.map(({ detail }: { detail: string }) => detail)).toContainEqual(
      expect.stringMatching(/^the gateway 10\.79\.3\.1:443 has given up version 0\.1\.2/),
    );
    expect(await two().journal('device-agent-gateway')).toContain('update given up by a gateway');
  });

  it('wait for one that is lost in its turn until it is removed', async () => {
    for (const machine of machines) await publishOn(machine, key, '0.1.3');
    await beginUpdate(two());
    await until(async () => (await two().run('grep', '-q', '"state": "trying"', TRIAL)).code === 0, 'the trial', {
      ...{ withinMs: 120_000, everyMs: 50 },
    });
    const { node } = (await turnOf(database)) as { node: string };
    await two().end();
    const waiting = updated(one(), '--to', '0.1.3');
    const isWaiting = async () => /waiting for its turn: the gateway 10\.79\.3\.2:443/.test(await updateLog(one()));
    await until(isWaiting, 'the other one waits', { withinMs: 120_000, everyMs: 200 });
    expect(await one().run('device-agent', 'gateway', 'nodes', 'remove', node)).toMatchObject({ code: 0 });
    expect(await waiting).toContain('updated from 0.1.1 to 0.1.3\nexit code 0');
    expect(await turnOf(database)).toBe(null);
  });
});

async function turnOf(database: PostgresServer): Promise<object | null> {
  const [found] = await database.query<{ value: string | null }>(
    `SELECT row->>'value' AS value FROM device_agent.rows WHERE tbl = 'facts' AND key = '["gateway_update_turn"]'`,
  );
  return JSON.parse(found?.value ?? 'null') as object | null;
}
