import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { rm, writeFile } from 'node:fs/promises';
import { createServer, type RequestListener } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { certificateFacts } from '../../src/gateway/certificates/certificate-facts.ts';
import { readUploadedPair } from '../../src/gateway/certificates/certificate-upload.ts';
import { issueCertificate } from '../support/certificates.ts';
import { freePorts } from '../support/free-ports.ts';
import { agentSession, getPublic, startTestGateway, type TestGateway } from '../support/gateway.ts';
import { serving } from '../support/loopback.ts';
import { Frame, frame, PREFACE, RawHttp2, requestsTo, setting } from '../support/raw-http2.ts';
import { recordingLog } from '../support/silent-log.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { until } from '../support/until.ts';

const INITIAL_WINDOW_SIZE = 4;

async function start(options: Parameters<typeof startTestGateway>[0] = {}) {
  const gateway = await startTestGateway(options);
  onTestFinished(() => gateway.close());
  return gateway;
}

async function upstream(listener: RequestListener): Promise<number> {
  return serving(createServer(listener));
}

async function bind(gateway: TestGateway, domain: string, port: number) {
  const session = await agentSession(gateway).connect();
  const listener = await session.httpEndpoint().domain(domain).listen(false);
  // Settles when the listener ends, which does not matter here.
  listener.forward(`http://127.0.0.1:${port}`).catch(() => {});
  return listener;
}

function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    socket.on('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.on('error', () => resolve(false));
  });
}

/** @returns a function that waits until the other side closes the connection */
async function silentConnection(port: number): Promise<() => Promise<unknown>> {
  const socket = connect(port, '127.0.0.1');
  const closed = new Promise((resolve) => {
    socket
      .once('close', resolve)
      .on('error', () => {})
      .resume();
  });
  await once(socket, 'connect');
  return () => closed;
}

describe('the gateway', () => {
  it('serves an endpoint of the SDK to clients until it is unbound', async () => {
    const gateway = await start();
    const listener = await bind(gateway, 'cam.localhost', await upstream((_req, res) => res.end('from the device')));
    const url = String(listener.url());
    expect(url).toBe(`https://cam.localhost:${gateway.httpsPort}`);
    expect(await getPublic(gateway, url)).toMatchObject({ status: 200, body: 'from the device' });
    await listener.close();
    expect((await getPublic(gateway, url)).status).toBe(404);
  });

  it('assigns names below its base domain', async () => {
    const gateway = await start({ domain: 'IoT.Example.org' });
    const session = await agentSession(gateway).connect();
    expect((await session.httpEndpoint().listen(false)).url()).toMatch(/^https:\/\/[a-z0-9-]+\.iot\.example\.org:\d+$/);
    await expect(session.httpEndpoint().domain('a.localhost').listen(false)).rejects.toThrow('ERR_NGROK_319');
  });

  it('keeps its CA across a restart, and issues a new authtoken', async () => {
    const dataDir = temporaryFolder();
    const first = await startTestGateway({ dataDir });
    await first.close();
    const second = await start({ dataDir });
    expect(second.sessionCa).toBe(first.sessionCa);
    expect(second.caFile).toBe(join(dataDir, 'gateway', 'ca.pem'));
    expect(existsSync(second.caFile)).toBe(true);
    expect(second.authtoken).not.toBe(first.authtoken);
  });

  it('logs when the CA or encryption key do not match its database, as after an incomplete restore', async () => {
    const dataDir = temporaryFolder();
    const errorsOfStart = async (work: (gateway: TestGateway) => Promise<unknown> = async () => {}) => {
      const { log, lines } = recordingLog();
      const gateway = await startTestGateway({ dataDir, log });
      await work(gateway);
      await gateway.close();
      return lines.filter(({ level }) => Number(level) >= 40).map(({ msg }) => msg);
    };
    const { certificatePem, privateKeyPem } = await issueCertificate({ subject: 'CN=cam.test', names: ['cam.test'] });
    const { leaf, key } = readUploadedPair(certificatePem, privateKeyPem);
    const common = { id: 'cert_1', created_at: '', description: null, metadata: null, issued_at: null };
    const row = { ...common, certificate_pem: certificatePem, facts: certificateFacts(leaf, key) };
    const upload = ({ store: { database, tlsCertificates } }: TestGateway) =>
      database.write(() => tlsCertificates.insertWithKey(row, privateKeyPem));
    expect(await errorsOfStart(upload)).toEqual([]);
    expect(await errorsOfStart()).toEqual([]);
    for (const name of ['ca.pem', 'ca-key.pem']) await rm(join(dataDir, 'gateway', name));
    await writeFile(join(dataDir, 'gateway', 'encryption.key'), Buffer.alloc(32, 7).toString('base64'));
    const authority = 'certificate authority replaced: clients that trust the old one cannot connect';
    const encryption = 'encryption key does not match what is encrypted in the database';
    expect((await errorsOfStart()).sort()).toEqual([authority, encryption]);
    expect(await errorsOfStart()).toEqual([encryption]);
  });

  it('serves others while clients keep all connections of a device with HTTP/2 windows of 0', async () => {
    const gateway = await start();
    let held = 0;
    const port = await upstream((req, res) => {
      if (req.url === '/') return res.end('fine');
      held += 1;
      res.once('close', () => void held--).write('never ending');
    });
    const session = await agentSession(gateway).connect();
    for (const host of ['cam.localhost', 'door.localhost']) {
      const listener = await session.httpEndpoint().domain(host).listen(false);
      listener.forward(`http://127.0.0.1:${port}`).catch(() => {});
    }
    const { set, get } = requestsTo('cam.localhost');
    const noWindow = Buffer.concat([
      Buffer.from(PREFACE),
      frame(Frame.settings, 0, 0, setting(INITIAL_WINDOW_SIZE, 0)),
    ]);
    const requests = Array.from({ length: 100 }, (_, at) => get(2 * at + 1, set(':path', '/large')));
    const place = { httpsPort: gateway.httpsPort, ca: { caPem: gateway.sessionCa } };
    for (let count = 0; count < 6; count++) {
      const attacker = await RawHttp2.open(place, 'cam.localhost', noWindow, '127.0.0.66');
      onTestFinished(() => void attacker.socket.destroy());
      attacker.send(...requests);
    }
    // The last tenth is for other endpoints.
    await until(() => held >= 450, 'attackers hold all connections that one endpoint may have');
    for (const host of ['door.localhost', 'cam.localhost']) {
      const answers = Array.from({ length: 10 }, () => getPublic(gateway, `https://${host}:${gateway.httpsPort}/`));
      expect((await Promise.all(answers)).map(({ status }) => status)).toEqual(Array(10).fill(200));
    }
    expect(held).toBeGreaterThan(400);
  });

  it('stops soon with connected agents and pending requests, and frees its ports', async () => {
    const { first } = await freePorts(3);
    const gateway = await startTestGateway({ httpPort: first, httpsPort: first + 1, sessionPort: first + 2 });
    let arrived = () => {};
    const underWay = new Promise<void>((resolve) => {
      arrived = resolve;
    });
    const listener = await bind(gateway, 'slow.localhost', await upstream(() => arrived()));
    const pending = getPublic(gateway, String(listener.url())).catch((error: Error) => error);
    await underWay;
    const started = performance.now();
    await gateway.close();
    expect(performance.now() - started).toBeLessThan(15_000);
    await pending;
    const ports = [gateway.httpPort, gateway.httpsPort, Number(gateway.sessionAddress.split(':')[1])];
    expect(await Promise.all(ports.map(accepts))).toEqual([false, false, false]);
  });

  it('stops in spite of idle connections', async () => {
    const gateway = await startTestGateway();
    const ports = [gateway.httpPort, gateway.httpsPort, gateway.sessionPort];
    const ended = await Promise.all(ports.map(silentConnection));
    await gateway.close();
    await Promise.all(ended.map((end) => end()));
    await expect(gateway.store.database.write(() => {})).rejects.toThrow('closed');
  });

  it('does not start when a port is in use', async () => {
    const taken = await start();
    const sessionPort = Number(taken.sessionAddress.split(':')[1]);
    await expect(startTestGateway({ sessionPort })).rejects.toMatchObject({ code: 'EADDRINUSE' });
  });
});
