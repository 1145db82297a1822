import { createServer, type RequestListener } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import { AgentProcess } from '../support/agent-process.ts';
import { ClusterProcesses } from '../support/cluster-processes.ts';
import { GatewayClient } from '../support/gateway-client.ts';
import type { GatewayProcess } from '../support/gateway-process.ts';
import { listening } from '../support/loopback.ts';
import { measured } from '../support/measured.ts';
import { NO_POSTGRES } from '../support/postgres-server.ts';
import { unless } from '../support/requirements.ts';
import { seeded } from '../support/seeded.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { persistTunnels } from './persisted-tunnels.ts';
import { PublicClient } from './public-client.ts';
import { rounds } from './rounds.ts';

const ROUNDS = Number(process.env.SHOWN_FAULTS ?? rounds({ short: 1, full: 30 }));
const SEED = Number(process.env.SHOWN_SEED ?? Math.floor(Math.random() * 1_000_000));
const TUNNELS = 4;
/** After the last change of what clients get. */
const SHOWN_MS = 30_000;
/** As long as people wait. */
const PATIENCE_MS = 9_000;
const LOOK_MS = 500;
/** Within that time, what clients get stays the same, and agents have come back. */
const SETTLED_MS = 180_000;

interface Upstream {
  readonly host: string;
  readonly port: number;
  serve(listener: RequestListener): void;
}

const serves: RequestListener = (_req, res) => void res.end('served');
const BREAKS: readonly RequestListener[] = [(req) => void req.socket.destroy(), () => {}];

async function startUpstream(host: string): Promise<Upstream> {
  let listener = serves;
  const port = await listening(createServer((req, res) => void listener(req, res)));
  const serve = (next: RequestListener) => {
    listener = next;
  };
  return { host, port, serve };
}

/** An agent with some tunnels, which reaches the gateways by the load balancer. */
async function startAgent(cluster: ClusterProcesses, connector: 'native' | 'sdk'): Promise<Upstream[]> {
  const names = Array.from({ length: TUNNELS }, (_, place) => `${connector}-${place}.localhost`);
  const upstreams = await Promise.all(names.map(startUpstream));
  const folder = temporaryFolder();
  persistTunnels(
    folder,
    upstreams.map(({ host, port }) => ({ domain: host, forwards_to: `localhost:${port}`, url: `https://${host}` })),
  );
  const agent = AgentProcess.start(folder, {
    NGROK_AUTHTOKEN: cluster.authtoken,
    NGROK_SERVER_ADDR: cluster.address,
    NGROK_CA_CERT: cluster.gateways[0]?.caFile ?? '',
    AGENT_CONNECTOR: connector,
  });
  onTestFinished(() => agent.end('SIGKILL').then(() => {}));
  await agent.ready();
  return upstreams;
}

/** A gateway as its clients and an operator see it. */
class SeenGateway {
  readonly #public: PublicClient;
  readonly #api: GatewayClient;

  constructor(
    readonly gateway: GatewayProcess,
    apiKey: string,
  ) {
    const { httpsPort, sessionCa } = gateway;
    this.#public = new PublicClient(() => ({ httpsPort, sessionCa }), PATIENCE_MS);
    onTestFinished(() => this.#public.close());
    const place = { apiUrl: `https://api.localhost:${httpsPort}`, httpsPort, sessionCa };
    this.#api = new GatewayClient(place, '127.0.0.1', apiKey);
  }

  async serves(host: string): Promise<boolean> {
    return (await this.#public.get(host)) === 'served';
  }

  /** Names of the endpoints that it shows as reached; null: it shows nothing. */
  async shown(): Promise<ReadonlySet<string> | null> {
    const answer = await this.#api.call('GET', '/endpoints?limit=100').catch(() => null);
    if (answer?.status !== 200) return null;
    const found = answer.body.endpoints as { host: string; probe?: { reached: boolean } }[];
    return new Set(found.flatMap(({ host, probe }) => (probe?.reached === true ? [host] : [])));
  }
}

it(`each of three gateways shows what clients get, within 30 s of kill -9 and of SIGSTOP of another one, ${ROUNDS} times`, {
  timeout: 600_000 + ROUNDS * 600_000,
  ...unless(NO_POSTGRES),
}, async () => {
  const cluster = await ClusterProcesses.start(3, { GATEWAY_PROBES: '*' });
  const apiKey = (await cluster.command('api-key', 'create')).stdout.trim();
  const all = cluster.gateways.map((gateway) => new SeenGateway(gateway, apiKey));
  const upstreams = [...(await startAgent(cluster, 'native')), ...(await startAgent(cluster, 'sdk'))];
  const random = seeded(SEED);
  const shownAfter: number[] = [];

  /**
   * Looks until what clients get by some gateways has been the same for 30 s, and is what they should get. Then each of these gateways has
   * to show that. Notes how long that took after the last change.
   */
  const shownBy = async (
    seen: readonly SeenGateway[],
    isOver: (served: readonly boolean[]) => boolean,
    what: string,
  ) => {
    const began = performance.now();
    let [changedAt, wrongAt, before] = [began, began, ''];
    for (;;) {
      const served = await Promise.all(
        upstreams.map(async ({ host }) => (await Promise.all(seen.map((each) => each.serves(host)))).every(Boolean)),
      );
      const now = performance.now();
      if (before !== '' && before !== `${served}`) changedAt = now;
      before = `${served}`;
      const shown = await Promise.all(seen.map((each) => each.shown()));
      const wrong = upstreams.flatMap(({ host }, at) =>
        shown.flatMap((hosts, by) =>
          hosts?.has(host) === served[at] ? [] : [`${host} at ${by}: ${hosts?.has(host)}`],
        ),
      );
      if (wrong.length > 0) wrongAt = now;
      const isDue = now - changedAt >= SHOWN_MS;
      if (isDue) expect(wrong, `${what}: ${served}`).toEqual([]);
      if (isDue && isOver(served)) return void shownAfter.push(Math.max(0, wrongAt - changedAt));
      expect(now - began, `${what}: ${served}`).toBeLessThan(SETTLED_MS);
      await delay(LOOK_MS);
    }
  };

  const areServed = (served: readonly boolean[]) => served.every(Boolean);
  await shownBy(all, areServed, 'the beginning');
  for (let round = 0; round < ROUNDS; round++) {
    const isKilled = random() < 0.5;
    const at = Math.floor(random() * all.length);
    const { gateway } = all[at] as SeenGateway;
    const broken = upstreams.map(() => random() < 0.5);
    const what = `${isKilled ? 'kill -9' : 'SIGSTOP'} of ${at}, broken: ${broken} (seed ${SEED}, round ${round})`;
    if (isKilled) await gateway.kill();
    else gateway.process.child.kill('SIGSTOP');
    for (const [place, { serve }] of upstreams.entries())
      if (broken[place]) serve(BREAKS[Math.floor(random() * BREAKS.length)] as RequestListener);
    const others = all.filter((_, each) => each !== at);
    await shownBy(others, (served) => served.every((each, place) => !(each && broken[place])), what);
    for (const { serve } of upstreams) serve(serves);
    if (isKilled) await gateway.restart();
    else gateway.process.child.kill('SIGCONT');
    await shownBy(all, areServed, `the end of ${what}`);
  }
  const fault = 'kill -9 and SIGSTOP of one of three gateways, until the others show what clients get';
  measured({ fault, tried: ROUNDS, recovery: shownAfter });
});
