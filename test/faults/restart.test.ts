import { createServer } from 'node:http';
import { Agent, request } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import ngrok from '@ngrok/ngrok';
import { expect, it, onTestFinished } from 'vitest';
import { AgentProcess } from '../support/agent-process.ts';
import { seconds } from '../support/finding.ts';
import { agentSettings } from '../support/gateway.ts';
import { GatewayProcess } from '../support/gateway-process.ts';
import { serving } from '../support/loopback.ts';
import { measured } from '../support/measured.ts';
import { unless } from '../support/requirements.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { until } from '../support/until.ts';
import type { Crew } from './fleet-agents.ts';
import { persistTunnels } from './persisted-tunnels.ts';
import { FULL, rounds } from './rounds.ts';

/** Devices with the native connector, and plain SDKs. */
const DEVICES = rounds({ short: 20, full: 250 });
const SDKS = rounds({ short: 10, full: 50 });
const PER_SECOND = rounds({ short: 50, full: 200 });
const CREW = fileURLToPath(new URL('../../build/faults/fleet-agents.js', import.meta.url));
/** Beside other tests, the next process starts too late for some. */
const NOT_ALONE = FULL ? null : 'a machine without other tests is required: npm run faults -- test/faults/restart';
/** A session counts as one that has lasted, so that its agent comes back at once. */
const STABLE_MS = 31_000;
/** The target on a machine that is not busy with other tests. */
const LONGEST_WAIT_MS = 3_000;
/** From a signal to the end of the process. */
const DYING_MS = 100;

interface Asked {
  host: string;
  /** Milliseconds of `performance.now()`. */
  began: number;
  ended: number;
  /** Null: it was answered by its upstream. */
  failure: string | null;
}

/** Asks names in turn at a steady rate, whatever the answers; every other request on a connection of its own. */
class SteadyLoad {
  readonly asked: Asked[] = [];
  readonly #agent = new Agent({ keepAlive: true });
  readonly #pending = new Set<Promise<void>>();
  #isOver = false;
  readonly #running: Promise<void>;

  constructor(
    private readonly gateway: Pick<GatewayProcess, 'httpsPort' | 'sessionCa'>,
    private readonly hosts: readonly string[],
    perSecond: number,
  ) {
    this.#running = this.#run(1000 / perSecond, gateway.sessionCa);
  }

  async #run(pauseMs: number, ca: string): Promise<void> {
    const start = performance.now();
    for (let count = 0; !this.#isOver; count += 1) {
      const asking = this.#ask(this.hosts[count % this.hosts.length] ?? '', count % 2 === 0, ca);
      this.#pending.add(asking);
      asking.finally(() => this.#pending.delete(asking));
      await delay(Math.max(0, start + (count + 1) * pauseMs - performance.now()));
    }
  }

  async #ask(host: string, isKept: boolean, ca: string): Promise<void> {
    const began = performance.now();
    const failure = await this.#failure(host, isKept, ca);
    this.asked.push({ host, began, ended: performance.now(), failure });
  }

  #failure(host: string, isKept: boolean, ca: string): Promise<string | null> {
    const { httpsPort: port } = this.gateway;
    const agent = isKept ? this.#agent : false;
    return new Promise((resolve) => {
      const options = { host: '127.0.0.1', port, servername: host, ca, agent, headers: { host: `${host}:${port}` } };
      request(options, (res) => {
        text(res).then(
          (body) => resolve(res.statusCode === 200 && body === `${host}:${port}` ? null : String(res.statusCode)),
          () => resolve('response cut'),
        );
      })
        .on('error', (error) => resolve(error.message))
        .end();
    });
  }

  async end(): Promise<void> {
    this.#isOver = true;
    await this.#running;
    await Promise.all(this.#pending);
    this.#agent.destroy();
  }
}

/** How often each failure happened. */
function failuresOf(asked: readonly Asked[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { failure } of asked) if (failure !== null) counts[failure] = (counts[failure] ?? 0) + 1;
  return counts;
}

async function startUpstream(): Promise<number> {
  const upstream = createServer((req, res) => setTimeout(() => res.end(req.headers.host), 20));
  await serving(upstream);
  return (upstream.address() as AddressInfo).port;
}

async function startDevices(gateway: GatewayProcess, upstream: number): Promise<string[]> {
  const hosts = Array.from({ length: DEVICES }, (_, i) => `device-${i}.localhost`);
  const folders = hosts.map((domain, i) => {
    const folder = join(gateway.folder, `device-${i}`);
    const url = `https://${domain}:${gateway.httpsPort}`;
    persistTunnels(folder, [{ domain, forwards_to: `localhost:${upstream}`, url }]);
    return folder;
  });
  const policies = fileURLToPath(new URL('../../defaults/policies.json', import.meta.url));
  const env = { ...agentSettings(gateway), AGENT_PORT: '0', AGENT_CONNECTOR: 'native', DEFAULT_POLICIES: policies };
  for (let i = 0; i < 2; i++) {
    const crew: Crew = { folders: folders.filter((_, j) => j % 2 === i), env };
    const agents = AgentProcess.run(CREW, [JSON.stringify(crew)], gateway.folder);
    onTestFinished(async () => void (await agents.end('SIGKILL')));
    const online = () => agents.lines.filter(({ msg }) => msg === 'tunnels online').length;
    await until(() => online() === crew.folders.length, 'all tunnels online', { withinMs: 300_000, everyMs: 100 });
  }
  return hosts;
}

async function startSdks(gateway: GatewayProcess, upstream: number): Promise<string[]> {
  const hosts = Array.from({ length: SDKS }, (_, i) => `sdk-${i}.localhost`);
  const builder = () =>
    new ngrok.SessionBuilder()
      .authtoken(gateway.authtoken)
      .serverAddr(gateway.sessionAddress)
      .caCert(Buffer.from(gateway.sessionCa));
  await Promise.all(
    hosts.map(async (host) => {
      const session = await builder().connect();
      onTestFinished(() => session.close().catch(() => {}));
      await session.httpEndpoint().domain(host).listenAndForward(`http://127.0.0.1:${upstream}`);
    }),
  );
  return hosts;
}

it.each([
  { signal: 'SIGTERM', loses: 'no request' },
  { signal: 'SIGKILL', loses: 'only requests under way' },
] as const)(
  `a gateway of ${DEVICES} devices and ${SDKS} SDKs that is replaced after $signal loses $loses`,
  { timeout: 600_000, ...unless(NOT_ALONE) },
  async ({ signal }) => {
    const gateway = await GatewayProcess.start(temporaryFolder(), {}, { held: true });
    onTestFinished(() => gateway.kill('SIGKILL'));
    const upstream = await startUpstream();
    const hosts = [...(await startDevices(gateway, upstream)), ...(await startSdks(gateway, upstream))];
    const load = new SteadyLoad(gateway, hosts, PER_SECOND);
    await delay(STABLE_MS);
    const ended = performance.now();
    await gateway.replace(signal);
    const awayMs = performance.now() - ended;
    await delay(5_000);
    await load.end();
    const failed = load.asked.filter(({ failure }) => failure !== null);
    const longest = Math.max(...load.asked.map((asked) => asked.ended - asked.began));
    const away = `the next process listens after ${seconds(awayMs)}`;
    measured({
      fault: `${signal} to a gateway of ${DEVICES} devices and ${SDKS} SDKs under ${PER_SECOND} requests a second, with held sockets`,
      tried: load.asked.length,
      note: `${failed.length} failed ${JSON.stringify(failuresOf(failed))}; ${away}; longest wait ${seconds(longest)}`,
    });
    const unexpected = signal === 'SIGTERM' ? failed : failed.filter(({ began }) => began > ended + DYING_MS);
    expect(failuresOf(unexpected)).toEqual({});
    if (FULL) expect(longest).toBeLessThan(LONGEST_WAIT_MS);
  },
);
