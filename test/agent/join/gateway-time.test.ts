import { generateKeyPairSync, sign, X509Certificate } from 'node:crypto';
import { createServer, type Server } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { createConnection } from 'node:net';
import { join } from 'node:path';
import { json } from 'node:stream/consumers';
import { beforeAll, describe, expect, it } from 'vitest';
import { connectToGateway } from '../../../src/agent/connectors/gateway-socket.ts';
import { GatewayTime } from '../../../src/agent/join/gateway-time.ts';
import { openProof, type TimePlace } from '../../../src/agent/join/pinned-time.ts';
import { type LocalCa, openLocalCa } from '../../../src/gateway/certificates/local-ca/local-ca.ts';
import { TimeProofs } from '../../../src/gateway/certificates/time-proofs.ts';
import { NO_PROXIES } from '../../../src/lib/network/proxy-rules.ts';
import { type ProvedTime, untrustedAt } from '../../../src/lib/tls/trusted-time.ts';
import { fetchTrusting } from '../../../src/management/fetch-trusting.ts';
import { TIME_NAME, TIME_STATEMENT, type TimeProof } from '../../../src/management/resources/time-proof.ts';
import { issueCertificate } from '../../support/certificates.ts';
import { serving } from '../../support/loopback.ts';
import { recordingLog, silentLog } from '../../support/silent-log.ts';
import { sharedFolder, temporaryFolder } from '../../support/temporary-folder.ts';

const DAY = 86_400_000;
const NONCE = Buffer.alloc(32, 7).toString('base64url');
const folder = sharedFolder();
let ca: LocalCa;
let authority: X509Certificate;
beforeAll(async () => {
  ca = await openLocalCa(join(folder, 'ca'), silentLog);
  authority = new X509Certificate(ca.caPem);
});

/** A gateway that proves the time that `now` says, or answers what `answer` makes of that. */
async function gatewayAt(now: () => number, answer = (proof: TimeProof): object => proof): Promise<TimePlace> {
  const times = new TimeProofs({ ca, certificates: () => [], now });
  const server: Server = createServer(async (req, res) => {
    const { nonce } = (await json(req)) as { nonce: string };
    res.setHeader('content-type', 'application/json').end(JSON.stringify(answer(await times.prove(nonce))));
  });
  return { origin: `http://127.0.0.1:${await serving(server)}`, proxies: NO_PROXIES, pinned: [authority] };
}

const provedAt = (time: GatewayTime, place: TimePlace) => time.at(async () => place).prove();
const proofNow = () => new TimeProofs({ ca, certificates: () => [] }).prove(NONCE);

/** A proof that somebody makes with a certificate and its key. */
function forged({ cert, key }: { cert: string; key: string }, payload: object): TimeProof {
  const text = JSON.stringify(payload);
  return {
    payload: text,
    signature: sign('sha256', Buffer.from(text), key).toString('base64url'),
    certificate: cert,
    ca: ca.caPem,
  };
}
const statement = (more: object = {}) => ({
  ...{ statement: TIME_STATEMENT, nonce: NONCE, time: new Date().toISOString(), certificates: [] },
  ...more,
});

describe('a proof of the time', () => {
  it('holds for the pinned CA, by its certificate or by its digest', async () => {
    const proof = await proofNow();
    const pin = Buffer.from(authority.fingerprint256.replaceAll(':', ''), 'hex');
    for (const pinned of [[authority], pin]) {
      expect(Math.abs(openProof(proof, NONCE, pinned).time - Date.now())).toBeLessThan(10_000);
    }
  });

  it('says which CAs have ended only if the newest one of the gateway has signed it', async () => {
    const newest = await openLocalCa(join(temporaryFolder(), 'newest'), silentLog);
    const both = { all: [ca, newest] };
    const proof = await new TimeProofs({ ca: both, certificates: () => [], ended: () => ['former'] }).prove(NONCE);
    expect(openProof(proof, NONCE, [new X509Certificate(newest.caPem)]).ended).toEqual(['former']);
    expect(openProof(proof, NONCE, [authority]).ended).toEqual([]);
  });

  it('is refused when it is of another CA, also one of the same name', async () => {
    const other = await openLocalCa(join(temporaryFolder(), 'other'), silentLog);
    const proof = await new TimeProofs({ ca: other, certificates: () => [] }).prove(NONCE);
    const pin = Buffer.from(authority.fingerprint256.replaceAll(':', ''), 'hex');
    expect(() => openProof(proof, NONCE, [authority])).toThrow(/another CA/);
    expect(() => openProof(proof, NONCE, pin)).toThrow(/another CA/);
    // The pinned CA is sent along, but has certified nothing.
    expect(() => openProof({ ...proof, ca: ca.caPem }, NONCE, pin)).toThrow(/another CA/);
  });

  it('is refused when it was made for another request, or was changed', async () => {
    const proof = await proofNow();
    const other = Buffer.alloc(32, 8).toString('base64url');
    expect(() => openProof(proof, other, [authority])).toThrow(/may be a replay/);
    const payload = proof.payload.replace(NONCE, other);
    expect(() => openProof({ ...proof, payload }, other, [authority])).toThrow(/wrong signature/);
    expect(() => openProof({ ...proof, signature: 'AAAA' }, NONCE, [authority])).toThrow(/wrong signature/);
  });

  it('is refused when a key for something else signed it: of a name that clients use, or of the CA itself', async () => {
    const leaf = await ca.issue(['cam.site.example.com']);
    expect(() => openProof(forged(leaf, statement()), NONCE, [authority])).toThrow(/key for something else/);
    const both = await ca.issue([TIME_NAME, 'cam.site.example.com']);
    expect(() => openProof(forged(both, statement()), NONCE, [authority])).toThrow(/key for something else/);
    const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'prime256v1' });
    const key = privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
    expect(() => openProof(forged({ cert: ca.caPem, key }, statement()), NONCE, [authority])).toThrow(/another CA/);
  });

  it('is refused outside of the validity of its key, which a thief could use for ever otherwise', async () => {
    const key = await ca.issue([TIME_NAME]);
    for (const time of [Date.now() - 3 * DAY, Date.now() + 500 * DAY]) {
      const proof = forged(key, statement({ time: new Date(time).toISOString() }));
      expect(() => openProof(proof, NONCE, [authority])).toThrow(/not valid at the time/);
    }
    const early = forged(key, statement({ time: '1970-01-01T00:00:10Z' }));
    expect(() => openProof(early, NONCE, [authority])).toThrow(/clock is not set/);
    expect(() => openProof(forged(key, statement({ statement: 'other' })), NONCE, [authority])).toThrow(/no time/);
  });

  it('is not made by a gateway whose own clock is not set', async () => {
    const young = await openLocalCa(join(temporaryFolder(), 'young'), silentLog, () => 5_000);
    const times = new TimeProofs({ ca: young, certificates: () => [], now: () => 5_000 });
    await expect(times.prove(NONCE)).rejects.toMatchObject({ status: 503, code: 'ERR_GATEWAY_CLOCK_NOT_SET' });
  });
});

describe('the time of the gateway', () => {
  it('goes on with the monotonic clock, until the clock of the machine agrees', async () => {
    let [wall, monotonic] = [5_000, 100];
    const { log, lines } = recordingLog();
    const time = new GatewayTime({ file: null, log, wallClock: () => wall, monotonic: () => monotonic });
    expect(time.now()).toBe(5_000);
    const now = Date.now();
    await provedAt(time, await gatewayAt(() => now));
    monotonic += 60_000;
    expect(time.now()).toBe(now + 60_000);
    expect(time.report()).toMatchObject({ source: 'gateway', aheadMs: 5_000 - (now + 60_000), problem: null });
    wall = now + 61_000;
    expect(time.now()).toBe(wall);
    expect(time.report()).toEqual({ source: 'system', aheadMs: null, problem: null });
    expect(lines.map(({ msg }) => msg)).toEqual([
      'clock wrong; using the time of the gateway',
      'clock right again; using it',
    ]);
  });

  it('never goes back past a kept proof, also after a restart', async () => {
    const file = join(temporaryFolder(), 'gateway-time.json');
    let now = Date.now();
    const place = await gatewayAt(() => now);
    const restarted = () => new GatewayTime({ file, log: silentLog, wallClock: () => 5_000 });
    await provedAt(restarted(), place);
    now -= 3_600_000;
    const time = restarted();
    await expect(provedAt(time, place)).rejects.toThrow(/proved earlier: check its clock, or delete/);
    expect(time.report()).toMatchObject({ source: 'system', problem: expect.stringContaining('proved earlier') });
    now += 7_200_000;
    await provedAt(time, place);
    expect(time.report().problem).toBeNull();
  });

  it('is not taken from somebody who replays an answer, or answers something else', async () => {
    let first: TimeProof | null = null;
    const replay = await gatewayAt(Date.now, (proof) => {
      first ??= proof;
      return first;
    });
    const time = () => new GatewayTime({ file: null, log: null, wallClock: () => 5_000 });
    await provedAt(time(), replay);
    const later = time();
    await expect(provedAt(later, replay)).rejects.toThrow(/may be a replay/);
    expect(later.now()).toBe(5_000);
    await expect(provedAt(time(), await gatewayAt(Date.now, () => ({ a: 1 })))).rejects.toThrow(/something else/);
    const older = createServer((_req, res) => res.writeHead(404).end());
    const origin = `http://127.0.0.1:${await serving(older)}`;
    await expect(provedAt(time(), { origin, proxies: NO_PROXIES, pinned: [] })).rejects.toThrow(
      /does not prove the time/,
    );
  });
});

describe('a certificate at a proved time', () => {
  const at = (time: number, certificates: string[] = []): ProvedTime => ({
    ...{ time, ca: authority, certificates: new Set(certificates) },
  });

  it('has to be signed by the CA of the proof, or named in it, for the host and that time', async () => {
    const leaf = new X509Certificate((await ca.issue(['connect.localhost', '127.0.0.1', '*.example.com'])).cert);
    const now = Date.now();
    for (const host of ['connect.localhost', '127.0.0.1', 'a.example.com'])
      expect(untrustedAt(at(now), host, leaf)).toBeNull();
    for (const host of ['other.localhost', '127.0.0.2', 'example.com', 'a.b.example.com', '']) {
      expect(untrustedAt(at(now), host, leaf)).toMatch(/another name/);
    }
    for (const time of [now - 3 * DAY, now + 400 * DAY, 0]) {
      expect(untrustedAt(at(time), '127.0.0.1', leaf)).toMatch(/valid from/);
    }
  });

  it('is not trusted when somebody else has signed it, however it is called', async () => {
    const subject = 'CN=device-agent local CA';
    const other = await issueCertificate({ subject, ca: true });
    const names = ['connect.localhost'];
    const foreign = await issueCertificate({ subject: 'CN=connect.localhost', names, issuer: other });
    const selfSigned = await issueCertificate({ subject, names });
    for (const { certificatePem } of [foreign, selfSigned, other]) {
      const certificate = new X509Certificate(certificatePem);
      expect(untrustedAt(at(Date.now()), 'connect.localhost', certificate)).toMatch(/neither signed nor named/);
    }
    const named = new X509Certificate(foreign.certificatePem);
    expect(untrustedAt(at(Date.now(), [named.fingerprint256]), 'connect.localhost', named)).toBeNull();
    expect(untrustedAt(at(Date.now(), [named.fingerprint256]), 'api.localhost', named)).toMatch(/another name/);
    expect(untrustedAt(at(0, [named.fingerprint256]), 'connect.localhost', named)).toMatch(/valid from/);
    // A leaf of the CA signs nothing.
    const leaf = await ca.issue(['cam.example.com']);
    const proof = { ...at(Date.now()), ca: new X509Certificate(leaf.cert) };
    expect(untrustedAt(proof, 'connect.localhost', named)).toMatch(/neither signed nor named/);
  });
});

describe('a connection while the clock is wrong', () => {
  const validity = { notBefore: new Date('2020-01-01'), notAfter: new Date('2020-02-01') };
  const names = ['localhost'];

  /** Somebody with an expired certificate, who passes requests for the time on to the gateway. */
  async function startMiddle(place: TimePlace) {
    const other = await issueCertificate({ subject: 'CN=device-agent local CA', ca: true });
    const leaf = await issueCertificate({ subject: 'CN=localhost', names, issuer: other, ...validity });
    const received: string[] = [];
    const server = createTlsServer({ cert: leaf.certificatePem, key: leaf.privateKeyPem }, (req, res) => {
      received.push(req.url ?? '');
      res.end();
    });
    server.on('tlsClientError', () => {});
    server.on('secureConnection', (socket) => socket.on('data', (bytes) => received.push(String(bytes))));
    const time = new GatewayTime({ file: null, log: null, wallClock: () => 5_000 }).at(async () => place);
    return { port: await serving(server), received, time, leaf, server };
  }

  it('sends nothing to somebody with another certificate, though the gateway proves the time', async () => {
    const { port, received, time } = await startMiddle(await gatewayAt(Date.now));
    const address = { host: '127.0.0.1', port, serverName: 'localhost' };
    const dial = async () => createConnection(port, '127.0.0.1');
    const connecting = connectToGateway({ address, dial, ca: ca.caPem, time }, AbortSignal.timeout(10_000));
    await expect(connecting).rejects.toThrow(/tls handshake error: .*neither signed nor named/);
    const request = { method: 'POST', headers: { authorization: 'secret' }, redirect: 'manual', body: 'x' } as const;
    const signal = AbortSignal.timeout(10_000);
    const posting = fetchTrusting({ ca: ca.caPem, time })(`https://localhost:${port}/secret`, { ...request, signal });
    await expect(posting).rejects.toThrow(/neither signed nor named/);
    expect(received).toEqual([]);
  });

  it('is refused when the certificate of the gateway itself has expired', async () => {
    const { server, port, received, time } = await startMiddle(await gatewayAt(Date.now));
    const past = await openLocalCa(join(folder, 'ca'), silentLog, () => Date.now() - 500 * DAY);
    const leaf = await past.issue(names);
    server.setSecureContext({ cert: leaf.cert, key: leaf.key });
    const posting = fetchTrusting({ ca: ca.caPem, time })(`https://localhost:${port}/`, {
      ...{ method: 'GET', headers: {}, redirect: 'manual', signal: AbortSignal.timeout(10_000) },
    });
    await expect(posting).rejects.toThrow(/it is valid from/);
    expect(received).toEqual([]);
  });
});
