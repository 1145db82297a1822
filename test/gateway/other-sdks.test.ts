import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { type AgentName, agentMissing, startOf } from '../interop/agents.ts';
import { FlakyProxy } from '../support/flaky-proxy.ts';
import { getPublic, startTestGateway, type TestGateway } from '../support/gateway.ts';
import { GatewayClient } from '../support/gateway-client.ts';
import { type HttpService, startHttpService } from '../support/http-service.ts';
import { unless } from '../support/requirements.ts';
import { until, within } from '../support/until.ts';

// The real SDKs of other languages. Recorded messages, for machines without them, are in sessions/other-sdks.test.ts.

interface Sdk {
  agent: AgentName;
  program?: string;
  /** Ways to have TLS terminated by the gateway: a policy, or `TLSTermination` in the options. */
  terminates: ('policy' | 'option')[];
  /** Other options that the SDK has. Without bindings, a name below `.internal` makes an endpoint internal. */
  has: ('names' | 'bindings' | 'session id')[];
  /** The member with the rules of a policy; `inbound` arrives as an object. */
  rules?: 'inbound';
}

const GO_1 = { agent: 'go', program: 'version1' } as const;
const GO_2 = { agent: 'go', program: 'version2' } as const;
const SDKS: Record<string, Sdk> = {
  'Python 1.4': { agent: 'python', terminates: ['policy', 'option'], has: [] },
  'Go 1.12': { ...GO_1, terminates: ['policy', 'option'], has: ['names', 'bindings'] },
  'Go 2.4': { ...GO_2, terminates: ['policy'], has: ['names', 'bindings', 'session id'] },
  'Rust 0.19': { agent: 'rust', terminates: ['policy', 'option'], has: ['bindings', 'session id'] },
  'JavaScript 1.3': { agent: 'javascript', terminates: ['option'], has: [], rules: 'inbound' },
};

interface WantedEndpoint {
  protocol: 'https' | 'tls';
  domain: string;
  policy?: string;
  binding?: string;
  edge_termination?: boolean;
  name?: string;
  description?: string;
  metadata?: string;
}

/** What the agent's SDK says when all endpoints are online. */
interface Online {
  session: string;
  region: string;
  diagnosed: string;
  urls: string[];
}

let gateway: TestGateway;
let upstream: HttpService;
beforeAll(async () => {
  gateway = await startTestGateway();
  upstream = await startHttpService((_, res) => void res.end('hello'));
});
afterAll(async () => {
  await gateway.close();
  await upstream.close();
});

const TERMINATIONS = {
  policy: { policy: JSON.stringify({ on_tcp_connect: [{ actions: [{ type: 'terminate-tls' }] }] }) },
  option: { edge_termination: true },
};

/** Runs an agent for the rest of the test. */
async function start(
  { agent, program }: Pick<Sdk, 'agent' | 'program'>,
  { servers = [gateway.sessionAddress], endpoints }: { servers?: string[]; endpoints: WantedEndpoint[] },
): Promise<Online> {
  const { command, env } = startOf(agent, program);
  const [path = '', ...args] = command;
  const child = spawn(path, args, { env: { PATH: process.env.PATH, ...env }, stdio: ['pipe', 'pipe', 'pipe'] });
  let said = '';
  child.stderr.on('data', (text) => {
    said += text;
  });
  const exited = once(child, 'exit');
  onTestFinished(async () => {
    child.kill('SIGKILL');
    await exited;
  });
  const [server, ...additional_servers] = servers;
  const { authtoken, sessionCa: ca } = gateway;
  const plan = { server, additional_servers, ca, authtoken, upstream: new URL(upstream.url).host, endpoints };
  child.stdin.write(`${JSON.stringify(plan)}\n`);
  const ended = exited.then(() => {
    throw new Error(`the agent ended: ${said}`);
  });
  const [line] = await within(Promise.race([once(createInterface(child.stdout), 'line'), ended]), 'online', 20_000);
  return JSON.parse(String(line)) as Online;
}

async function bodyOf(url: string): Promise<string> {
  const { status, body } = await getPublic(gateway, url);
  return status === 200 ? body : `status ${status}`;
}

/** The endpoints below a name, as the management API lists them. */
async function listed(suffix: string): Promise<Record<string, unknown>[]> {
  const api = await GatewayClient.of(gateway);
  const { body } = await api.call('GET', '/endpoints');
  const endpoints = body.endpoints as Record<string, unknown>[];
  return endpoints.filter(({ host }) => String(host).endsWith(suffix));
}

for (const [title, sdk] of Object.entries(SDKS)) {
  const { agent, terminates, has, rules = 'on_http_request' } = sdk;
  const name = title.replace(/\W/g, '').toLowerCase();

  describe(title, unless(agentMissing(agent)), () => {
    it('has its endpoints back after a lost connection, also those whose TLS the gateway terminates', async () => {
      const proxy = await FlakyProxy.start(gateway.sessionAddress);
      onTestFinished(() => proxy.close());
      const endpoints: WantedEndpoint[] = [
        { protocol: 'https', domain: `web.${name}.localhost` },
        ...terminates.map((way) => {
          return { protocol: 'tls', domain: `${way}.${name}.localhost`, ...TERMINATIONS[way] } as const;
        }),
      ];
      const urls = endpoints.map(({ domain }) => `https://${domain}/`);
      const answers = () => Promise.all(urls.map((url) => bodyOf(url).catch((error: Error) => error.message)));
      await start(sdk, { servers: [proxy.address], endpoints });
      expect(await answers()).toEqual(urls.map(() => 'hello'));
      proxy.cut();
      await until(() => proxy.accepted > 1, 'a second connection', { withinMs: 20_000, everyMs: 20 });
      const allBack = async () => (await answers()).every((answer) => answer === 'hello');
      await until(allBack, 'all endpoints answer again', { withinMs: 20_000, everyMs: 20 });
    });

    it('keeps internal endpoints internal, and forwards to them', async () => {
      const inner = `inner.${name}.internal`;
      const forward = { type: 'forward-internal', config: { url: `https://${inner}` } };
      const policy = JSON.stringify({ [rules]: [{ actions: [forward] }] });
      await start(sdk, {
        endpoints: [
          { protocol: 'https', domain: inner, ...(has.includes('bindings') && { binding: 'internal' }) },
          { protocol: 'https', domain: `outer.${name}.localhost`, policy },
        ],
      });
      expect(await bodyOf(`https://outer.${name}.localhost/`)).toBe('hello');
      expect(await bodyOf(`https://${inner}/`)).toBe('status 404');
      expect(await listed(inner)).toMatchObject([{ bindings: ['internal'] }]);
    });

    if (has.includes('bindings')) {
      it('is refused a binding that the gateway cannot keep', async () => {
        for (const [binding, code] of [
          ['internal', 'ERR_NGROK_9029'],
          ['kubernetes', 'ERR_NGROK_15005'],
        ] as const) {
          const endpoint = { protocol: 'https', domain: `bound.${name}.localhost`, binding } as const;
          await expect(start(sdk, { endpoints: [endpoint] })).rejects.toThrow(code);
        }
      });
    }

    it('shows who and what it is connected to, and the gateway what the SDK tells', async () => {
      const domain = `named.${name}.localhost`;
      const annotations = has.includes('names') ? { name: `cam-${name}`, description: 'at the gate' } : {};
      const about = { ...annotations, metadata: 'room 4' };
      const online = await start(sdk, { endpoints: [{ protocol: 'https', domain, ...about }] });
      const [endpoint] = await listed(domain);
      expect(endpoint).toMatchObject(about);
      expect(online.urls).toEqual([endpoint?.url]);
      if (has.includes('session id')) expect(endpoint).toMatchObject({ tunnel_session: { id: online.session } });
    });
  });
}

it('the Go SDK 2.4 diagnoses its connection and names the region', unless(agentMissing('go')), async () => {
  const online = await start(
    { agent: 'go', program: 'version2' },
    { endpoints: [{ protocol: 'https', domain: 'x.localhost' }] },
  );
  expect(online).toMatchObject({ region: 'self-hosted', diagnosed: 'self-hosted' });
});

it(
  'endpoints of the Go SDK 1.12 with several connections stay online without one',
  unless(agentMissing('go')),
  async () => {
    const legs = await Promise.all([1, 2].map(() => FlakyProxy.start(gateway.sessionAddress)));
    for (const leg of legs) onTestFinished(() => leg.close());
    const endpoint = { protocol: 'https', domain: 'legs.localhost', name: 'both' } as const;
    await start(GO_1, { servers: legs.map(({ address }) => address), endpoints: [endpoint] });
    await until(async () => (await listed('legs.localhost')).length === 2, 'both connections bind', {
      withinMs: 20_000,
    });
    for (const leg of legs) {
      await leg.refuse();
      await until(async () => (await listed('legs.localhost')).length === 1, 'one is offline');
      for (let request = 0; request < 4; request++) expect(await bodyOf('https://legs.localhost/')).toBe('hello');
      await leg.listen();
      await until(async () => (await listed('legs.localhost')).length === 2, 'it is back', {
        withinMs: 20_000,
        everyMs: 20,
      });
    }
  },
);
