import type { RequestListener } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import { AgentProcess } from '../support/agent-process.ts';
import { ClusterProcesses } from '../support/cluster-processes.ts';
import { GatewayClient } from '../support/gateway-client.ts';
import type { GatewayProcess } from '../support/gateway-process.ts';
import { startHttpService } from '../support/http-service.ts';
import { measured } from '../support/measured.ts';
import { NO_POSTGRES } from '../support/postgres-server.ts';
import { unless } from '../support/requirements.ts';
import { seeded } from '../support/seeded.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { persistTunnels } from './persisted-tunnels.ts';
import { PublicClient } from './public-client.ts';
import { rounds } from './rounds.ts';

const ROUNDS = Number(process.env.SHOWN_FAULTS ?? rounds({ short: 2, full: 30 }));
const SEED = Number(process.env.SHOWN_SEED ?? 20_261_201);
const TUNNELS = 4;
/** After the last change of what clients get. */
const SHOWN_MS = 30_000;
/** As long as people wait. */
const PATIENCE_MS = 9_000;
const LOOK_MS = 500;
/** Agents notice within that time that their gateway hangs, and come back elsewhere. */
const SETTLED_MS = 120_000;

interface Upstream {
  readonly host: string;
  readonly port: number;
  serve(listener: RequestListener): void;
}

const serves: RequestListener = (_req, res) => void res.end('served');
const BREAKS: readonly RequestListener[] = [(req) => void req.socket.destroy(), () => {}];

async function startUpstream(host: string): Promise<Upstream> {
  let listener = serves;
  const service = await startHttpService((req, res) => void listener(req, res));
  onTestFinished(() => service.close());
  const serve = (next: RequestListener) => {
    listener = next;
  };
  return { host, port: Number(new URL(service.url).port), serve };
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

  /** Names of the endpoints that it shows as reached. */
  async shown(): Promise<ReadonlySet<string>> {
    const { body } = await this.#api.call('GET', '/endpoints?limit=100');
    const found = body.endpoints as { host: string; probe?: { reached: boolean } }[];
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

  /** Waits until each of some gateways shows what all of their clients get, and notes how long after the last change that was. */
  const shownBy = async (
    seen: readonly SeenGateway[],
    isSettled: (served: readonly boolean[]) => boolean,
    what: string,
  ) => {
    const began = performance.now();
    let [changedAt, before] = [began, ''];
    for (;;) {
      const served = await Promise.all(
        upstreams.map(async ({ host }) => (await Promise.all(seen.map((each) => each.serves(host)))).every(Boolean)),
      );
      const now = performance.now();
      if (before !== '' && before !== `${served}`) changedAt = now;
      before = `${served}`;
      const shown = await Promise.all(seen.map((each) => each.shown()));
      const wrong = upstreams.flatMap(({ host }, at) =>
        shown.flatMap((reached, by) =>
          reached.has(host) === served[at] ? [] : [`${host} at ${by}: ${reached.has(host)}`],
        ),
      );
      if (wrong.length === 0 && isSettled(served)) return void shownAfter.push(now - changedAt);
      if (!isSettled(served)) expect(now - began, `${what}: ${served}`).toBeLessThan(SETTLED_MS);
      else expect(now - changedAt, `${what}: ${wrong}`).toBeLessThan(SHOWN_MS);
      await delay(LOOK_MS);
    }
  };

  const areServed = (served: readonly boolean[]) => served.every(Boolean);
  await shownBy(all, areServed, 'the beginning');
  for (let round = 0; round < ROUNDS; round++) {
    const isKilled = round % 2 === 0;
    const at = Math.floor(random() * all.length);
    const { gateway } = all[at] as SeenGateway;
    const broken = upstreams.map(() => random() < 0.5);
    const what = `${isKilled ? 'kill -9' : 'SIGSTOP'} of ${at}, broken: ${broken} (seed ${SEED}, round ${round})`;
    if (isKilled) await gateway.kill();
    else gateway.process.child.kill('SIGSTOP');
    for (const [place, { serve }] of upstreams.entries())
      if (broken[place]) serve(BREAKS[Math.floor(random() * BREAKS.length)] as RequestListener);
    const others = all.filter((_, each) => each !== at);
    await shownBy(others, (served) => served.every((each, place) => each !== broken[place]), what);
    for (const { serve } of upstreams) serve(serves);
    if (isKilled) await gateway.restart();
    else gateway.process.child.kill('SIGCONT');
    await shownBy(all, areServed, `the end of ${what}`);
  }
  const fault = 'kill -9 and SIGSTOP of one of three gateways, until the others show what clients get';
  measured({ fault, tried: ROUNDS, recovery: shownAfter });
});
