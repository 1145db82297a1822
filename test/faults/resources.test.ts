import { createServer, type IncomingMessage } from 'node:http';
import { Agent, get } from 'node:https';
import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import { AgentProcess } from '../support/agent-process.ts';
import { quantile } from '../support/finding.ts';
import { FlakyProxy } from '../support/flaky-proxy.ts';
import { GatewayProcess } from '../support/gateway-process.ts';
import { serving } from '../support/loopback.ts';
import { measured } from '../support/measured.ts';
import { type ProcessResources, processResources } from '../support/process-resources.ts';
import { NO_LINUX, unless } from '../support/requirements.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { persistTunnels } from './persisted-tunnels.ts';
import { expectRecovery } from './recovery.ts';
import { rounds } from './rounds.ts';

/** What a day brings, and into how many parts it is cut; resources are looked at after each. */
const REQUESTS = rounds({ short: 1_000, full: 1_000_000 });
const STARTS = rounds({ short: 40, full: 10_000 });
const RECONNECTS = rounds({ short: 24, full: 1_000 });
const HOURS = rounds({ short: 4, full: 24 });
const TUNNELS = 10;
const CONNECTIONS = 16;
const CALLERS = 4;
/** Domains for short-lived tunnels: more than are online at a time. */
const NAMES = 100;
/** Makes random numbers 0 in the agent's process, so that backoff takes no time. */
const NO_BACKOFF = 'Math.random = () => 0;';
/** A signal forces a collection, so that only memory in use is measured. */
const COLLECT: NodeJS.Signals = 'SIGUSR2';
const COLLECTOR = `
  import { setFlagsFromString } from 'node:v8';
  import { runInNewContext } from 'node:vm';
  setFlagsFromString('--expose_gc');
  const collect = runInNewContext('gc');
  process.on('${COLLECT}', () => collect());`;
const preload = (script: string) => ({ NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(script)}` });
/** Pools of threads and of connections grow and shrink; one that is lost with every other reconnect would show. */
const LEEWAY = RECONNECTS / 2;
/** The agent's API and its relay to the gateway; the gateway's four doors. */
const LISTENERS = { agent: 2, gateway: 4 };
/** The leeway that collector and allocator take: whatever stays of every lost session would exceed it. */
const MAX_GROWTH_MIB = 32;

it(`a day of ${REQUESTS} requests, ${STARTS} tunnels started and stopped and ${RECONNECTS} reconnects leaves nothing behind`, {
  timeout: 180_000 + REQUESTS * 2 + STARTS * 100 + RECONNECTS * 1_000,
  ...unless(NO_LINUX),
}, async () => {
  const day = await Day.begin();
  await day.hour(0.2); // what is made once is made now
  const samples = [await day.resources()];
  for (let hour = 0; hour < HOURS; hour++) {
    await day.hour(1);
    samples.push(await day.resources());
  }
  const fault = `${HOURS} hours' work, one after another`;
  const note = `${REQUESTS} requests, ${STARTS} tunnels started and stopped, ${RECONNECTS} reconnects`;
  measured({ fault, lost: day.unanswered, note });
  expectRecovery(`connection that is cut, with ${TUNNELS} tunnels`, day.reconnects, 20_000, RECONNECTS);
  expect(day.unanswered).toBe(0);
  for (const who of ['agent', 'gateway'] as const) {
    const own = samples.map((sample) => sample[who]);
    const [first, last] = [own.at(0), own.at(-1)] as [ProcessResources, ProcessResources];
    const growth = median(own.slice(-quarter(own))) - median(own.slice(0, quarter(own) + 1));
    const held = ({ fds, listeners, threads, rssMib }: ProcessResources) =>
      `${fds} descriptors, ${listeners} listeners, ${threads} threads, ${Math.round(rssMib)} MiB`;
    measured({ fault, tried: 0, note: `the ${who} holds ${held(first)} before, ${held(last)} after` });
    expect(growth, who).toBeLessThan(MAX_GROWTH_MIB);
    // Threads of a pool that are no longer needed, and connections kept alive or used to clean up, end within seconds.
    const later = async () => (await day.resources())[who];
    await expect.poll(async () => (await later()).threads, { message: who }).toBeLessThan(first.threads + LEEWAY);
    await expect.poll(async () => (await later()).fds).toBeLessThan(first.fds + LEEWAY);
    await expect.poll(async () => (await later()).listeners).toBe(LISTENERS[who]);
  }
});

const quarter = (samples: readonly unknown[]) => Math.floor(samples.length / 4);
const median = (samples: readonly ProcessResources[]) =>
  quantile(
    samples.map(({ rssMib }) => rssMib),
    0.5,
  );

/** An agent and a gateway, each a process of its own, and all that asks something of them. */
class Day {
  readonly reconnects: number[] = [];
  unanswered = 0;
  #names = 0;

  private constructor(
    private readonly gateway: GatewayProcess,
    private readonly proxy: FlakyProxy,
    private readonly agent: AgentProcess,
    private readonly api: string,
    private readonly hosts: readonly string[],
  ) {}

  static async begin(): Promise<Day> {
    const folder = temporaryFolder();
    const gateway = await GatewayProcess.start(folder, preload(COLLECTOR));
    onTestFinished(() => gateway.kill());
    const proxy = await FlakyProxy.start(gateway.sessionAddress);
    onTestFinished(() => proxy.close());
    const port = await serving(createServer((req, res) => res.end(req.headers.host)));
    const hosts = Array.from({ length: TUNNELS }, (_, i) => `day-${i}.localhost`);
    const device = `${folder}/device`;
    const url = (domain: string) => `https://${domain}:${gateway.httpsPort}`;
    persistTunnels(
      device,
      hosts.map((domain) => ({ domain, forwards_to: `localhost:${port}`, url: url(domain) })),
    );
    const agent = AgentProcess.inTest(device, {
      NGROK_AUTHTOKEN: gateway.authtoken,
      NGROK_SERVER_ADDR: proxy.address,
      NGROK_CA_CERT: gateway.caFile,
      ...preload(COLLECTOR + NO_BACKOFF),
    });
    return new Day(gateway, proxy, agent, await agent.ready(), hosts);
  }

  /** A share of an hour's work: requests, then tunnels that come and go, then connections that are cut. */
  async hour(share: number): Promise<void> {
    const part = (total: number) => Math.ceil((total / HOURS) * share);
    await this.#ask(part(REQUESTS));
    const starts = Math.ceil(part(STARTS) / CALLERS);
    await Promise.all(Array.from({ length: CALLERS }, () => this.#startAndStop(starts)));
    for (let i = 0; i < part(RECONNECTS); i++) await this.#reconnect(share === 1);
  }

  /** What both processes hold after a collection, and once they have let go of what they are about to let go of. */
  async resources(): Promise<{ agent: ProcessResources; gateway: ProcessResources }> {
    for (const { child } of [this.agent, this.gateway.process]) child.kill(COLLECT);
    let before = this.#look();
    for (let looks = 0; looks < 50; looks++) {
      await delay(200);
      const now = this.#look();
      if (now.agent.fds === before.agent.fds && now.gateway.fds === before.gateway.fds) return now;
      before = now;
    }
    return before;
  }

  #look() {
    return { agent: processResources(this.agent.child.pid), gateway: processResources(this.gateway.process.child.pid) };
  }

  async #ask(requests: number): Promise<void> {
    const { httpsPort, sessionCa: ca } = this.gateway;
    let left = requests;
    const ask = async (host: string) => {
      const agent = new Agent({ keepAlive: true, maxSockets: 1, ca, servername: host });
      const options = { host: '127.0.0.1', port: httpsPort, agent, headers: { host: `${host}:${httpsPort}` } };
      while (left > 0) {
        left -= 1;
        const res = await new Promise<IncomingMessage>((resolve, reject) => get(options, resolve).on('error', reject));
        if ((await text(res)) !== options.headers.host || res.statusCode !== 200) this.unanswered += 1;
      }
      agent.destroy();
    };
    await Promise.all(Array.from({ length: CONNECTIONS }, (_, i) => ask(this.hosts[i % TUNNELS] ?? '')));
  }

  async #startAndStop(times: number): Promise<void> {
    const headers = { 'content-type': 'application/json' };
    for (let i = 0; i < times; i++) {
      const name = `passing-${this.#names++ % NAMES}`;
      const body = JSON.stringify({ protocol: 'http', forwards_to: 9, domain: `${name}.localhost` });
      const started = await fetch(`${this.api}/tunnels`, { method: 'POST', headers, body });
      await started.arrayBuffer();
      const stopped = await fetch(`${this.api}/tunnels/${name}`, { method: 'DELETE' });
      if (started.status !== 200 || stopped.status !== 204) this.unanswered += 1;
    }
  }

  async #reconnect(counts: boolean): Promise<void> {
    const from = performance.now();
    const up = this.agent.logged('tunnels online', this.agent.lines.length);
    this.proxy.cut();
    await up;
    if (counts) this.reconnects.push(performance.now() - from);
  }
}
