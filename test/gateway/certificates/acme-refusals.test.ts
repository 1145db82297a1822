import type { IncomingMessage } from 'node:http';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import {
  AcmeAccountKey,
  AcmeCa,
  type AcmeCaOptions,
  type KeySeal,
} from '../../../src/gateway/certificates/acme/acme-account.ts';
import { AcmeIssuer } from '../../../src/gateway/certificates/acme/acme-issuer.ts';
import {
  HttpChallenges,
  TlsAlpnChallenges,
  TxtChallenges,
} from '../../../src/gateway/certificates/challenges/challenges.ts';
import { makePrivateKey } from '../../../src/gateway/certificates/issuing/certificate-issuer.ts';
import { systemClock } from '../../../src/lib/time/clock.ts';
import { issueCertificate } from '../../support/certificates.ts';
import { NameServer } from '../../support/name-server.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

const TARGET = 'abc.def.cname.gateway.test';

interface Reply {
  status?: number;
  headers?: Record<string, string>;
  body?: unknown;
}
interface SignedRequest {
  path: string;
  protected: { jwk?: { x?: string }; kid?: string };
  payload: Record<string, unknown> | null;
}

/** A CA with scripted responses: a real one refuses nothing on demand. */
class ScriptedCa {
  readonly requests: SignedRequest[] = [];
  readonly #server: Server;
  /** Responses by path, in order; the last one repeats. */
  readonly replies: Record<string, Reply[]> = {};
  meta: object = {};
  /** Further members of its directory. */
  more: object = {};
  /** Called with each request; the response waits for it. */
  onRequest: (path: string) => Promise<void> | undefined = () => undefined;

  constructor(own: { cert: string; key: string }) {
    this.#server = createServer(own, async (req, res) => {
      const { status = 200, headers = {}, body } = await this.#reply(req);
      res.writeHead(status, { 'Replay-Nonce': 'bm9uY2U', ...headers });
      res.end(typeof body === 'string' ? body : JSON.stringify(body));
    });
  }

  get url(): string {
    return `https://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async #reply(req: IncomingMessage): Promise<Reply> {
    const path = String(req.url);
    const [newNonce, newAccount, newOrder] = ['nonce', 'account', 'order'].map((name) => `${this.url}/${name}`);
    if (path === '/directory') return { body: { newNonce, newAccount, newOrder, meta: this.meta, ...this.more } };
    if (path === '/nonce') return {};
    const { protected: head, payload } = JSON.parse((await req.toArray()).join(''));
    const read = (part: string) => JSON.parse(Buffer.from(part, 'base64url').toString() || 'null');
    this.requests.push({ path, protected: read(head), payload: read(payload) });
    await this.onRequest(path);
    const replies = this.replies[path] ?? [{ status: 201, headers: { Location: `${this.url}/account/1` }, body: {} }];
    return (replies.length > 1 ? replies.shift() : replies[0]) ?? {};
  }

  count(path: string): number {
    return this.requests.filter((request) => request.path === path).length;
  }

  start(): Promise<void> {
    return new Promise((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
  }

  stop(): Promise<unknown> {
    this.#server.closeAllConnections();
    return new Promise((resolve) => this.#server.close(resolve));
  }
}

const box: KeySeal = { seal: (plain) => Buffer.from(plain), open: (sealed) => sealed.toString() };

function problem(status: number, type: string, detail: string, headers: Record<string, string> = {}): Reply {
  return { status, headers, body: { type: `urn:ietf:params:acme:error:${type}`, detail } };
}

describe('an ACME CA that does not issue', () => {
  let ca: ScriptedCa;
  let dns: NameServer;
  let folder: string;
  let own: { cert: string; key: string };

  beforeAll(async () => {
    const { certificatePem, privateKeyPem } = await issueCertificate({ subject: 'CN=ca', names: ['127.0.0.1'] });
    own = { cert: certificatePem, key: privateKeyPem };
  });
  beforeEach(async () => {
    ca = new ScriptedCa(own);
    await ca.start();
    dns = await NameServer.start();
    dns.cname('shop.example.test', TARGET);
    folder = temporaryFolder();
  });
  afterEach(async () => {
    await Promise.all([ca.stop(), dns.stop()]);
  });

  function issuer(options: Partial<AcmeCaOptions> = {}, next: string | null = null): AcmeIssuer {
    const account = { contactEmail: null, externalAccountBinding: null, ...options };
    const key = new AcmeAccountKey(join(folder, 'account'), box);
    const challenges = { http: new HttpChallenges(), tlsAlpn: new TlsAlpnChallenges(), txt: new TxtChallenges() };
    return new AcmeIssuer(
      {
        ca: new AcmeCa({ directoryUrl: `${ca.url}/directory`, ...account }, key, null, () => next),
        targets: () => ({ cname_target: TARGET, acme_challenge_cname_target: null }),
        trust: own.cert,
        plainChallenges: ['http-01'],
        dnsServers: [dns.address],
      },
      { ...challenges, clock: systemClock },
    );
  }

  const request = { domain: 'shop.example.test', privateKeyType: 'ecdsa' } as const;
  const neverAborted = new AbortController().signal;

  /** Prepares an order for a name that is already validated. */
  function orderIsReady(): void {
    const order = { authorizations: [`${ca.url}/authorization`], finalize: `${ca.url}/finalize` };
    const headers = { Location: `${ca.url}/order/1` };
    ca.replies['/order'] = [{ status: 201, headers, body: { ...order, status: 'ready' } }];
    ca.replies['/authorization'] = [{ body: { status: 'valid', challenges: [] } }];
  }

  it('is not asked again before its Retry-After', async () => {
    ca.replies['/order'] = [problem(429, 'rateLimited', 'too many certificates', { 'Retry-After': '7200' })];
    await expect(issuer().issue(request, neverAborted)).rejects.toMatchObject({
      code: 'INTERNAL_ERROR',
      message: expect.stringMatching(
        /^The certificate authority limits the rate of requests until \d{4}-\d\d-\d\dT[\d:]{8}Z: too many certificates$/,
      ),
      retryAfter: 7200,
    });
    expect(ca.count('/order')).toBe(1);
  });

  it('may name the time in words, as Let’s Encrypt does, and a long reason ends after a word', async () => {
    const time = new Date(Date.now() + 3 * 3_600_000).toISOString().replace('T', ' ').slice(0, 19);
    const detail = `too many certificates (5) already issued, retry after ${time} UTC: ${'see there '.repeat(60)}`;
    ca.replies['/order'] = [problem(429, 'rateLimited', detail)];
    const failure = await issuer()
      .issue(request, neverAborted)
      .catch((error) => error);
    expect(Math.abs(failure.retryAfter - 3 * 3600)).toBeLessThan(10);
    expect(failure.message).toContain(`until ${time.replace(' ', 'T')}Z: too many certificates`);
    expect(failure.message).toMatch(/ (see|there) …$/);
  });

  it('may not know the certificate that an order replaces: it is ordered as a new one', async () => {
    const { certificatePem } = await issueCertificate({ subject: 'CN=old', names: ['shop.example.test'], keyId: true });
    ca.more = { renewalInfo: `${ca.url}/renewal` };
    ca.replies['/order'] = [
      problem(409, 'alreadyReplaced', 'replaced before'),
      problem(403, 'rejectedIdentifier', 'not this name'),
    ];
    const failure = issuer().issue({ ...request, replaces: certificatePem }, neverAborted);
    await expect(failure).rejects.toMatchObject({ message: expect.stringContaining('not this name') });
    const [first, second] = ca.requests.filter(({ path }) => path === '/order');
    // Key id and serial number in base64url (RFC 9773, section 4.1).
    expect(first?.payload?.replaces).toMatch(/^[\w-]{27}\.AIdlQyE$/);
    expect(second?.payload).toEqual({ identifiers: [{ type: 'dns', value: 'shop.example.test' }] });
  });

  it('is asked about an order that an earlier process has begun, and sends its certificate', async () => {
    const { certificatePem, privateKeyPem } = await issueCertificate({
      subject: 'CN=shop',
      names: ['shop.example.test'],
    });
    const authority = `${ca.url}/directory`;
    ca.replies['/order/7'] = [{ body: { status: 'valid', certificate: `${ca.url}/certificate` } }];
    ca.replies['/certificate'] = [{ body: certificatePem }];
    const begun = { authority, url: `${ca.url}/order/7`, privateKeyPem };
    await expect(issuer().issue({ ...request, begun }, neverAborted)).resolves.toMatchObject({ privateKeyPem });
    expect(ca.count('/order')).toBe(0);
  });

  it('may send Retry-After as a date', async () => {
    const date = new Date(Date.now() + 3_600_000).toUTCString();
    ca.replies['/account'] = [{ status: 503, headers: { 'Retry-After': date }, body: '<h1>maintenance</h1>' }];
    const failure = await issuer()
      .issue(request, neverAborted)
      .catch((error) => error);
    expect(failure).toMatchObject({
      code: 'INTERNAL_ERROR',
      message: 'The certificate authority refused the request: HTTP status 503',
    });
    expect(failure.retryAfter).toBeGreaterThan(3590);
    expect(failure.retryAfter).toBeLessThanOrEqual(3600);
  });

  it('is asked again after as many seconds as a date says by its own clock', async () => {
    orderIsReady();
    const dayLater = (seconds: number) => new Date(Date.now() + 86_400_000 + seconds * 1000).toUTCString();
    const headers = { Date: dayLater(0), 'Retry-After': dayLater(1) };
    ca.replies['/finalize'] = [{ headers, body: { status: 'processing' } }];
    ca.replies['/order/1'] = [
      { headers: { ...headers, 'Retry-After': dayLater(3000) }, body: { status: 'processing' } },
    ];
    const failure = await issuer()
      .issue(request, neverAborted)
      .catch((error) => error);
    expect(failure.retryAfter).toBeGreaterThan(2990);
    expect(failure.retryAfter).toBeLessThanOrEqual(3001);
  });

  it.each([
    ['a rejected nonce', problem(400, 'badNonce', 'old nonce')],
    ['a refusal', problem(403, 'unauthorized', 'no')],
  ])('while the clock is two days behind names the clock (%s)', async (_what, reply) => {
    const date = new Date(Date.now() + 2 * 86_400_000).toUTCString();
    ca.replies['/order'] = [{ ...reply, headers: { Date: date } }];
    await expect(issuer().issue(request, neverAborted)).rejects.toMatchObject({
      message: expect.stringMatching(
        /The clock of this machine shows \d{4}-.*, 2 days behind the certificate authority's; set it\.$/,
      ),
    });
  });

  it('whose own certificate is not valid at the time of this machine names the clock', async () => {
    const soon = new Date(Date.now() + 86_400_000);
    const { certificatePem, privateKeyPem } = await issueCertificate({
      subject: 'CN=ca',
      names: ['127.0.0.1'],
      notBefore: soon,
      notAfter: new Date(soon.getTime() + 86_400_000),
    });
    await ca.stop();
    const usual = own;
    onTestFinished(() => {
      own = usual;
    });
    own = { cert: certificatePem, key: privateKeyPem };
    ca = new ScriptedCa(own);
    await ca.start();
    await expect(issuer().issue(request, neverAborted)).rejects.toMatchObject({
      message: expect.stringMatching(/unreachable: .*; the clock of this machine shows .*, set it if that is wrong\.$/),
    });
  });

  it('that is unreachable at every address is reported with the reason', async () => {
    const subject = issuer({ directoryUrl: `${ca.url.replace('127.0.0.1', 'localhost')}/directory` });
    await ca.stop();
    await expect(subject.issue(request, neverAborted)).rejects.toMatchObject({
      code: 'INTERNAL_ERROR',
      message: expect.stringMatching(/^The certificate authority is unreachable: localhost:\d+: .*ECONNREFUSED/),
    });
  });

  it('that needs longer than the deadline gets a later attempt', async () => {
    orderIsReady();
    ca.replies['/finalize'] = [{ headers: { 'Retry-After': '3600' }, body: { status: 'processing' } }];
    ca.replies['/order/1'] = [{ headers: { 'Retry-After': '3600' }, body: { status: 'processing' } }];
    await expect(issuer().issue(request, neverAborted)).rejects.toMatchObject({
      code: 'INTERNAL_ERROR',
      retryAfter: 3600,
    });
  });

  it('that sends a certificate for another name is refused', async () => {
    const { certificatePem } = await issueCertificate({ subject: 'CN=other', names: ['other.example.test'] });
    orderIsReady();
    ca.replies['/finalize'] = [{ body: { status: 'valid', certificate: `${ca.url}/certificate` } }];
    ca.replies['/certificate'] = [{ body: certificatePem }];
    await expect(issuer().issue(request, neverAborted)).rejects.toMatchObject({
      code: 'INTERNAL_ERROR',
      message: 'The certificate authority sent a certificate that is not for shop.example.test.',
    });
  });

  it('that CAA records forbid is not asked', async () => {
    ca.meta = { caaIdentities: ['letsencrypt.org'] };
    dns.add({ type: 'CAA', name: 'example.test', data: { flags: 0, tag: 'issue', value: 'other-ca.test' } });
    await expect(issuer().issue(request, neverAborted)).rejects.toMatchObject({
      code: 'DNS_ERROR',
      message: expect.stringContaining('The CAA record of example.test'),
    });
    expect(ca.count('/order')).toBe(0);
  });

  it('that finds a CAA record itself is reported as DNS_ERROR', async () => {
    ca.replies['/order'] = [problem(403, 'caa', 'CAA record for shop.example.test prevents issuance')];
    await expect(issuer().issue(request, neverAborted)).rejects.toMatchObject({ code: 'DNS_ERROR' });
  });

  it('is not asked while the domain points elsewhere', async () => {
    dns.remove('shop.example.test');
    await expect(issuer().issue(request, neverAborted)).rejects.toMatchObject({ code: 'DNS_ERROR' });
    expect(ca.requests).toEqual([]);
  });

  it('may reject a nonce, which costs one more request', async () => {
    ca.replies['/order'] = [
      problem(400, 'badNonce', 'used before'),
      problem(403, 'rejectedIdentifier', 'not this name'),
    ];
    await expect(issuer().issue(request, neverAborted)).rejects.toMatchObject({
      message: 'The certificate authority refused the request: not this name',
    });
    expect(ca.count('/order')).toBe(2);
  });

  it('that has lost the account gets a new registration with the next attempt', async () => {
    ca.replies['/order'] = [problem(400, 'accountDoesNotExist', 'who?')];
    const subject = issuer();
    for (const registrations of [1, 2]) {
      await expect(subject.issue(request, neverAborted)).rejects.toMatchObject({ code: 'INTERNAL_ERROR' });
      expect(ca.count('/account')).toBe(registrations);
    }
  });

  it('gets one account for two concurrent first orders', async () => {
    ca.replies['/order'] = [problem(403, 'unauthorized', 'no')];
    const subject = issuer();
    await Promise.allSettled([subject.issue(request, neverAborted), subject.issue(request, neverAborted)]);
    expect([ca.count('/account'), ca.count('/order')]).toEqual([1, 2]);
  });

  it('receives the same key after a restart, agreed terms, the contact and the binding', async () => {
    ca.replies['/order'] = [problem(403, 'unauthorized', 'no')];
    const options = { contactEmail: 'ops@example.test', externalAccountBinding: { kid: 'kid-1', hmacKey: 'c2VjcmV0' } };
    const registered = { status: 201, headers: { Location: `${ca.url}/account/1` }, body: {} };
    ca.replies['/account'] = [problem(400, 'accountDoesNotExist', 'no such account'), registered];
    for (const _start of [1, 2])
      await issuer(options)
        .issue(request, neverAborted)
        .catch(() => {});
    const [asked, first, second] = ca.requests.filter(({ path }) => path === '/account');
    expect(asked?.payload).toEqual({ onlyReturnExisting: true });
    expect(first?.protected.jwk?.x).toEqual(expect.any(String));
    expect(second?.protected.jwk).toEqual(first?.protected.jwk);
    expect(first?.payload).toMatchObject({
      termsOfServiceAgreed: true,
      contact: ['mailto:ops@example.test'],
      externalAccountBinding: { payload: expect.any(String), signature: expect.any(String) },
    });
  });

  const registered = (): Reply => ({ status: 201, headers: { Location: `${ca.url}/account/1` }, body: {} });

  it.each([
    ['that does not change keys', false, problem(400, 'accountDoesNotExist', 'who?')],
    ['that refuses the change', true, problem(400, 'accountDoesNotExist', 'who?')],
    ['that wants a binding of each unknown key', true, problem(400, 'externalAccountRequired', 'no binding')],
    ['that fails at unknown keys', null, { status: 500, body: '<h1>error</h1>' }],
  ])('%s gets orders with the old key', async (_what, changes, unknown) => {
    const subject = issuer({}, await makePrivateKey('ecdsa'));
    if (changes !== false) ca.more = { keyChange: `${ca.url}/key-change` };
    ca.replies['/key-change'] = [problem(403, 'unauthorized', 'not today')];
    ca.replies['/account'] = [unknown, registered(), unknown, registered()];
    ca.replies['/order'] = [problem(403, 'rejectedIdentifier', 'not this name')];
    const change = subject.changeAccountKey(neverAborted);
    if (changes === null) await expect(change).rejects.toMatchObject({ message: expect.stringContaining('500') });
    else await expect(change).resolves.toBe(changes ? 'not today' : 'it does not change keys of accounts');
    ca.replies['/account'] = [unknown, registered()];
    const order = subject.issue(request, neverAborted);
    await expect(order).rejects.toMatchObject({ message: expect.stringContaining('not this name') });
  });

  it.each([
    ['refuses', problem(403, 'unauthorized', 'of another account'), 'of another account'],
    ['has done before', problem(400, 'alreadyRevoked', 'done'), null],
  ])('is not asked again for a revocation that it %s', async (_what, reply, refusal) => {
    ca.more = { revokeCert: `${ca.url}/revoke` };
    ca.replies['/revoke'] = [reply];
    await expect(issuer().revoke(own.cert, 1, neverAborted)).resolves.toBe(refusal);
  });

  it.each([
    problem(429, 'rateLimited', 'slowly'),
    problem(403, 'userActionRequired', 'new terms'),
    { status: 403, body: '<h1>a proxy</h1>' },
  ])('is asked again for a revocation after a failure that passes: %o', async (reply) => {
    ca.more = { revokeCert: `${ca.url}/revoke` };
    ca.replies['/revoke'] = [reply];
    await expect(issuer().revoke(own.cert, 1, neverAborted)).rejects.toMatchObject({ code: 'INTERNAL_ERROR' });
  });

  it('that never responds is not waited for once the job is cancelled', async () => {
    const abort = new AbortController();
    ca.onRequest = (path) => {
      if (path !== '/order') return undefined;
      abort.abort(new Error('cancelled'));
      return new Promise<never>(() => {});
    };
    await expect(issuer().issue(request, abort.signal)).rejects.toThrow('cancelled');
  });
});
