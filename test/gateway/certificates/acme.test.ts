import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync, statSync } from 'node:fs';
import { createServer as createHttpServer, type Server as HttpServer, type RequestListener } from 'node:http';
import { createServer as createTcpServer, type Server as TcpServer } from 'node:net';
import { join } from 'node:path';
import pino from 'pino';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { AcmeAccountKey, AcmeCa, type KeySeal } from '../../../src/gateway/certificates/acme/acme-account.ts';
import { AcmeIssuer, type AcmeIssuerOptions } from '../../../src/gateway/certificates/acme/acme-issuer.ts';
import { ChallengeDns } from '../../../src/gateway/certificates/challenges/challenge-dns.ts';
import {
  answerTlsAlpn,
  HttpChallenges,
  TlsAlpnChallenges,
  TxtChallenges,
} from '../../../src/gateway/certificates/challenges/challenges.ts';
import type { IssueRequest } from '../../../src/gateway/certificates/issuing/certificate-issuer.ts';
import { type Clock, systemClock } from '../../../src/lib/time/clock.ts';
import { AcmeServer, NO_ACME_SERVER } from '../../support/acme-server.ts';
import { NameServer } from '../../support/name-server.ts';
import { unless } from '../../support/requirements.ts';
import { sharedFolder } from '../../support/temporary-folder.ts';

/** Loopback addresses of this process only: CAs validate at fixed ports. */
const net = `127.77.${process.pid % 250}`;
const [RESOLVER, GATEWAY, CA] = [`${net}.1`, `${net}.2`, `${net}.3`];

const CNAME_TARGET = 'abc.def.cname.gateway.test';
const CHALLENGE_ZONE = 'acme.gateway.test';
const CHALLENGE_TARGET = `k3j9x2ab.${CHALLENGE_ZONE}`;

/** A stand-in for encryption; the real box has its own tests. */
const box: KeySeal = {
  seal: (plain, owner) => Buffer.from(`${owner}:${Buffer.from(plain).toString('base64')}`),
  open: (sealed, owner) => Buffer.from(sealed.toString().slice(owner.length + 1), 'base64').toString(),
};

/** Polls with short pauses. */
const fastClock: Clock = { ...systemClock, sleep: (ms, signal) => systemClock.sleep(Math.min(ms, 50), signal) };

describe('certificates from a real ACME CA', unless(NO_ACME_SERVER), () => {
  let resolver: NameServer;
  let ca: AcmeServer;
  let challengeDns: ChallengeDns;
  let web: HttpServer;
  let front: TcpServer;
  const folder = sharedFolder();
  let answerWeb: RequestListener;
  const http = new HttpChallenges();
  const tlsAlpn = new TlsAlpnChallenges();
  const txt = new TxtChallenges();
  const webRequests: string[] = [];

  beforeAll(async () => {
    resolver = await NameServer.start(RESOLVER, 53);
    const zone = { name: CHALLENGE_ZONE, nameServer: 'gateway.test', texts: (name: string) => txt.lookup(name) };
    const log = pino({ level: 'silent' });
    challengeDns = new ChallengeDns({ host: GATEWAY, port: 0, zone }, { clock: systemClock, log });
    resolver.delegate(CHALLENGE_ZONE, GATEWAY, await challengeDns.start());
    resolver.add({ type: 'A', name: CNAME_TARGET, data: GATEWAY });
    web = createHttpServer((req, res) => {
      webRequests.push(`${req.headers.host} ${req.url}`);
      answerWeb(req, res);
    });
    front = createTcpServer((socket) => {
      const context = tlsAlpn.context('tls.example.test');
      if (context) answerTlsAlpn(socket, context);
      else socket.destroy();
    });
    await Promise.all([listen(web, 80), listen(front, 443)]);
    ca = await AcmeServer.start(CA, RESOLVER);
  });

  afterAll(async () => {
    web.closeAllConnections();
    await Promise.all([ca.stop(), challengeDns.stop(), resolver.stop(), close(web), close(front)]);
  });

  beforeEach(() => {
    answerWeb = (req, res) => {
      const answer = http.answer(req.headers.host ?? '', req.url ?? '');
      res.writeHead(answer === undefined ? 404 : 200).end(answer);
    };
    webRequests.length = 0;
  });

  afterEach(() => {
    for (const name of ['plain.example.test', 'tls.example.test']) resolver.remove(name);
    for (const name of ['*.site.example.test', '_acme-challenge.site.example.test']) resolver.remove(name);
  });

  const listen = (server: HttpServer | TcpServer, port: number) => once(server.listen(port, GATEWAY), 'listening');
  const close = (server: HttpServer | TcpServer) => new Promise((resolve) => server.close(resolve));

  /** The issuer of a gateway that has just started. */
  function issuer(options: Partial<AcmeIssuerOptions> = {}): AcmeIssuer {
    const account = {
      directoryUrl: ca.directoryUrl,
      contactEmail: 'ops@example.test',
      externalAccountBinding: null,
    };
    return new AcmeIssuer(
      {
        ca: new AcmeCa(account, new AcmeAccountKey(join(folder, 'account'), box)),
        targets: (domain) => ({
          cname_target: CNAME_TARGET,
          acme_challenge_cname_target: domain.startsWith('*.') ? CHALLENGE_TARGET : null,
        }),
        trust: ca.root,
        plainChallenges: ['http-01', 'tls-alpn-01'],
        dnsServers: [RESOLVER],
        ...options,
      },
      { http, tlsAlpn, txt, clock: fastClock },
    );
  }

  const plain = (domain: string): IssueRequest => ({ domain, privateKeyType: 'ecdsa' });
  const wildcard: IssueRequest = { domain: '*.site.example.test', privateKeyType: 'ecdsa' };
  const neverAborted = new AbortController().signal;

  it('validates a plain name with TLS-ALPN when port 80 points elsewhere', async () => {
    resolver.cname('tls.example.test', CNAME_TARGET);
    answerWeb = (_req, res) => void res.writeHead(404).end();
    const { certificatePem } = await issuer().issue(plain('tls.example.test'), neverAborted);
    expect(new X509Certificate(certificatePem).subjectAltName).toBe('DNS:tls.example.test');
    expect(webRequests).toHaveLength(1);
    expect(tlsAlpn.context('tls.example.test')).toBeUndefined();
  });

  it('renews after a restart with the same account, whose key is encrypted on disk', async () => {
    resolver.cname('plain.example.test', CNAME_TARGET);
    const first = await issuer().issue(plain('plain.example.test'), neverAborted);
    const kept = readFileSync(join(folder, 'account'));
    const second = await issuer().issue(plain('plain.example.test'), neverAborted);
    expect(readFileSync(join(folder, 'account'))).toEqual(kept);
    expect(kept.toString()).not.toContain('PRIVATE KEY');
    expect(statSync(join(folder, 'account')).mode & 0o777).toBe(0o600);
    const serial = (pem: string) => new X509Certificate(pem).serialNumber;
    expect(serial(second.certificatePem)).not.toBe(serial(first.certificatePem));
    expect(second.privateKeyPem).not.toBe(first.privateKeyPem);
  });

  it('reports what the CA received instead of the challenge response', async () => {
    resolver.cname('plain.example.test', CNAME_TARGET);
    answerWeb = (_req, res) => void res.end('another server');
    const failure = issuer({ plainChallenges: ['http-01'] }).issue(plain('plain.example.test'), neverAborted);
    await expect(failure).rejects.toMatchObject({
      code: 'DNS_ERROR',
      message: expect.stringMatching(
        /^The certificate authority could not validate plain\.example\.test \(http-01: .+\)\.$/,
      ),
      retryAfter: 900,
    });
  });

  it('stops immediately when aborted, and withdraws the challenge', async () => {
    resolver.cname('plain.example.test', CNAME_TARGET);
    const abort = new AbortController();
    // Caddy validates while it responds: its response waits for this one.
    answerWeb = () => abort.abort(new Error('domain deleted'));
    await expect(issuer().issue(plain('plain.example.test'), abort.signal)).rejects.toThrow('domain deleted');
    const [host, path] = String(webRequests[0]).split(' ');
    expect(http.answer(String(host), String(path))).toBeUndefined();
  });

  it('does not ask the CA while the challenge zone is unreachable', async () => {
    resolver.cname('*.site.example.test', CNAME_TARGET);
    resolver.cname('_acme-challenge.site.example.test', 'k3j9x2ab.acme.unreachable.test');
    const targets = () => ({
      cname_target: CNAME_TARGET,
      acme_challenge_cname_target: 'k3j9x2ab.acme.unreachable.test',
    });
    await expect(issuer({ targets }).issue(wildcard, neverAborted)).rejects.toMatchObject({
      code: 'INTERNAL_ERROR',
      message: expect.stringContaining('_acme-challenge.site.example.test is not visible'),
    });
    expect(txt.lookup('k3j9x2ab.acme.unreachable.test')).toEqual([]);
  });
});
