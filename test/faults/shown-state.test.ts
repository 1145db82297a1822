import { createServer, type RequestListener } from 'node:http';
import { request } from 'node:https';
import { setTimeout as delay } from 'node:timers/promises';
import type { Session } from '@ngrok/ngrok';
import { expect, it, onTestFinished } from 'vitest';
import { certificateFacts } from '../../src/gateway/certificates/certificate-facts.ts';
import { readUploadedPair } from '../../src/gateway/certificates/certificate-upload.ts';
import { AgentProcess } from '../support/agent-process.ts';
import { issueCertificate } from '../support/certificates.ts';
import { domainRow } from '../support/domain-row.ts';
import { FlakyProxy } from '../support/flaky-proxy.ts';
import {
  agentSession,
  agentSettings,
  managementClientOf,
  startTestGateway,
  type TestGateway,
} from '../support/gateway.ts';
import { listening } from '../support/loopback.ts';
import { measured } from '../support/measured.ts';
import { seeded } from '../support/seeded.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { until } from '../support/until.ts';
import { rounds } from './rounds.ts';

const FAULTS = Number(process.env.SHOWN_FAULTS ?? rounds({ short: 7, full: 500 }));
const SEED = Number(process.env.SHOWN_SEED ?? 20_261_130);
const DEVICES = 7;
/** After a fault, and after its end. */
const SHOWN_MS = 30_000;
/** As long as people wait. */
const PATIENCE_MS = 9_000;
const PAUSE_MS = 2_000;

const KINDS = ['stopped', 'half-open', 'expired', 'denied', 'dead', 'hung', 'taken'] as const;
type Kind = (typeof KINDS)[number];

/** A device with an agent of its own, whose link, upstream, policy and certificate can break. */
class FaultyDevice {
  fault: Kind | null = null;
  #isOver = false;
  /** Another agent, which has taken its name. */
  #other: Session | null = null;
  #running: Promise<void> = Promise.resolve();

  private constructor(
    readonly host: string,
    private readonly gateway: TestGateway,
    private readonly agent: AgentProcess,
    private readonly link: FlakyProxy,
    private readonly upstream: { port: number; serve: (listener: RequestListener) => void },
    private readonly useCertificate: (which: 'valid' | 'expired') => Promise<void>,
  ) {}

  static async start(gateway: TestGateway, place: number): Promise<FaultyDevice> {
    const host = `cam-${place}.example.org`;
    const { useCertificate } = await certificatesOf(gateway, host);
    let listener: RequestListener = serves;
    const port = await listening(createServer((req, res) => void listener(req, res)));
    const link = await FlakyProxy.start(() => gateway.sessionAddress);
    onTestFinished(() => link.close());
    const settings = { ...agentSettings(gateway), NGROK_SERVER_ADDR: link.address };
    const agent = AgentProcess.inTest(temporaryFolder(), settings);
    const serve = (next: RequestListener) => {
      listener = next;
    };
    const device = new FaultyDevice(host, gateway, agent, link, { port, serve }, useCertificate);
    await agent.ready();
    await device.#open(null);
    // Nobody asks for every other one: only the gateway can notice what breaks there.
    if (place % 2 === 0) device.#running = device.#askAll();
    onTestFinished(async () => {
      device.#isOver = true;
      await device.#running;
    });
    return device;
  }

  async break(kind: Kind): Promise<void> {
    this.fault = kind;
    if (kind === 'stopped') this.agent.child.kill('SIGSTOP');
    else if (kind === 'half-open') this.link.silence();
    else if (kind === 'expired') await this.useCertificate('expired');
    else if (kind === 'denied') await this.#open({ on_http_request: [{ actions: [{ type: 'deny' }] }] });
    else if (kind === 'taken') await this.#loseName();
    else if (kind === 'dead') this.upstream.serve((req) => void req.socket.destroy());
    else this.upstream.serve(() => {});
  }

  async mend(): Promise<void> {
    const kind = this.fault;
    this.fault = null;
    if (kind === 'stopped') this.agent.child.kill('SIGCONT');
    else if (kind === 'half-open') {
      this.link.speak();
      this.link.cut();
    } else if (kind === 'expired') await this.useCertificate('valid');
    else if (kind === 'denied') await this.#open(null);
    else if (kind === 'taken') {
      await this.#other?.close();
      await this.#open(null);
    } else this.upstream.serve(serves);
  }

  /** Whether a client outside gets what it asks for: a response that is no error of the gateway or the upstream. */
  isServed(): Promise<boolean> {
    const { httpsPort, sessionCa: ca } = this.gateway;
    return new Promise((resolve) => {
      const place = { host: '127.0.0.1', port: httpsPort, servername: this.host, ca, agent: false };
      const asking = request({ ...place, headers: { host: `${this.host}:${httpsPort}` } }, (response) => {
        response.resume();
        resolve(response.statusCode === 200);
        asking.destroy();
      });
      asking.setTimeout(PATIENCE_MS, () => asking.destroy());
      asking.on('error', () => resolve(false));
      setTimeout(() => asking.destroy(new Error('no response')), PATIENCE_MS).unref();
      asking.end();
    });
  }

  async #open(policy: object | null): Promise<void> {
    const api = await this.#closeAll();
    const body = { protocol: 'http', domain: this.host, forwards_to: this.upstream.port, ...(policy && { policy }) };
    const headers = { 'content-type': 'application/json' };
    const response = await fetch(`${api}/tunnels`, { method: 'POST', headers, body: JSON.stringify(body) });
    expect(response.status, await response.text()).toBe(200);
  }

  /** Another agent has the name, and nothing behind it. */
  async #loseName(): Promise<void> {
    await this.#closeAll();
    this.#other = await agentSession(this.gateway).connect();
    const listener = await this.#other.httpEndpoint().domain(this.host).listen(false);
    listener.forward('http://127.0.0.1:1').catch(() => {});
  }

  async #closeAll(): Promise<string> {
    const api = await this.agent.api();
    const tunnels = (await (await fetch(`${api}/tunnels`)).json()) as { url_part: string }[];
    for (const { url_part } of tunnels) await fetch(`${api}/tunnels/${url_part}`, { method: 'DELETE' });
    return api;
  }

  /** Somebody always wants something of it. */
  async #askAll(): Promise<void> {
    while (!this.#isOver) {
      await this.isServed();
      await delay(PAUSE_MS);
    }
  }
}

const serves: RequestListener = (_req, res) => void res.end('served');

/** A domain with a certificate that is valid, or has expired. */
async function certificatesOf({ store }: TestGateway, host: string) {
  const { database, reservedDomains, tlsCertificates } = store;
  const domain = domainRow(store, host, null);
  const authority = await issueCertificate({ subject: `CN=${host}`, ca: true });
  const issue = async (id: string, own: { notAfter?: Date }) => {
    const options = {
      subject: `CN=${host}`,
      names: [host],
      issuer: authority,
      notBefore: new Date('2020-01-01'),
      ...own,
    };
    const { certificatePem, privateKeyPem } = await issueCertificate(options);
    const { leaf, key } = readUploadedPair(certificatePem, privateKeyPem);
    const common = { created_at: store.now(), description: null, metadata: null, issued_at: null };
    const row = { ...common, id, certificate_pem: certificatePem, facts: certificateFacts(leaf, key) };
    await database.write(() => tlsCertificates.insertWithKey(row, privateKeyPem));
  };
  await database.write(() => reservedDomains.insert(domain));
  await issue(`cert_${host}`, { notAfter: new Date(Date.now() - 60_000) });
  // Without one of its own, the name has one of the gateway's authority, which clients trust here.
  const useCertificate = async (which: 'valid' | 'expired') => {
    const certificate_id = which === 'expired' ? `cert_${host}` : null;
    await database.write(() => reservedDomains.update({ ...domain, certificate_id }));
  };
  return { useCertificate };
}

it(`what is shown is what clients get, within 30 s of each of ${FAULTS} faults and of its end`, {
  timeout: 600_000 + FAULTS * 60_000,
}, async () => {
  const gateway = await startTestGateway({ probes: ['*'] });
  onTestFinished(() => gateway.close());
  const random = seeded(SEED);
  const devices: FaultyDevice[] = [];
  for (let place = 0; place < DEVICES; place++) devices.push(await FaultyDevice.start(gateway, place));
  const client = await managementClientOf(gateway);
  const shown = async () => {
    const { items } = await client.endpoints.list();
    return new Map(items.map(({ host = '', probe }) => [host, probe ?? null]));
  };
  const isAgreed = async () => {
    const served = await Promise.all(devices.map((device) => device.isServed()));
    const states = await shown();
    return devices.every(({ host }, at) => (states.get(host)?.reached === true) === served[at]);
  };
  const seen: Record<string, Set<string>> = {};
  const shownAfter: number[] = [];
  await until(isAgreed, 'all are shown', { withinMs: SHOWN_MS, everyMs: 500 });
  for (let done = 0; done < FAULTS; done += DEVICES) {
    const kinds = devices.map(
      (_, at) => KINDS[(done < KINDS.length ? done + at : Math.floor(random() * KINDS.length)) % KINDS.length] as Kind,
    );
    const began = performance.now();
    await Promise.all(devices.map((device, at) => device.break(kinds[at] as Kind)));
    const isBroken = async () => {
      const states = await shown();
      return devices.every(({ host }) => states.get(host)?.reached !== true);
    };
    await until(isBroken, `${kinds} are shown (seed ${SEED}, fault ${done})`, { withinMs: SHOWN_MS, everyMs: 500 });
    shownAfter.push(performance.now() - began);
    expect(await Promise.all(devices.map((device) => device.isServed()))).toEqual(devices.map(() => false));
    const states = await shown();
    for (const [at, { host }] of devices.entries()) {
      const stage = states.has(host) ? (states.get(host)?.stage ?? 'asking') : 'offline';
      const kind = kinds[at] as Kind;
      seen[kind] = (seen[kind] ?? new Set()).add(stage);
    }
    const mended = performance.now();
    await Promise.all(devices.map((device) => device.mend()));
    await until(
      () => Promise.all(devices.map((each) => each.isServed())).then((all) => all.every(Boolean)),
      'served again',
      {
        withinMs: 90_000,
        everyMs: 200,
      },
    );
    const served = performance.now();
    const isMended = async () => {
      const states = await shown();
      return devices.every(({ host }) => states.get(host)?.reached === true);
    };
    const over = `the end of ${kinds} is shown (seed ${SEED}, fault ${done})`;
    await until(isMended, over, { withinMs: SHOWN_MS, everyMs: 500 });
    shownAfter.push(performance.now() - served);
    await until(isAgreed, over, { withinMs: PATIENCE_MS });
    expect(performance.now() - mended).toBeLessThan(120_000);
  }
  const stages = Object.entries(seen).map(([kind, found]) => `${kind}: ${[...found].sort().join(', ')}`);
  measured({
    fault: 'a state that is shown, until it is what clients get',
    tried: FAULTS,
    recovery: shownAfter,
    note: stages.join('; '),
  });
});
