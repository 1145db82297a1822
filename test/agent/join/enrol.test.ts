import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { installationFor } from '../../../src/agent/join/installation.ts';
import { type EnrolOptions, enrol } from '../../../src/agent/join/join-site.ts';
import { NO_PROXIES } from '../../../src/lib/network/proxy-rules.ts';
import { formatJoinCode, parseJoinCode } from '../../../src/management/join-code.ts';
import { issueCertificate } from '../../support/certificates.ts';
import { inviteTo } from '../../support/enrolment.ts';
import { startTestGateway, type TestGateway } from '../../support/gateway.ts';
import { InstantClock } from '../../support/instant-clock.ts';
import { serving } from '../../support/loopback.ts';

let gateway: TestGateway;
beforeEach(async () => {
  gateway = await startTestGateway();
});
afterEach(() => gateway.close());

function options(more: Partial<EnrolOptions> = {}): EnrolOptions {
  return { name: 'cam', proxies: NO_PROXIES, clock: new InstantClock(), deadline: 0, onWait: () => {}, ...more };
}

it('a device verifies the gateway with the code and gets what it needs to come online', async () => {
  const code = await inviteTo(gateway);
  const { enrolment, caPem } = await enrol(installationFor(code, null, null), options());
  expect(enrolment).toMatchObject({
    name: 'cam',
    domain: 'agent-cam.site.localhost',
    session_address: gateway.sessionAddress,
  });
  expect(caPem?.trim()).toBe(gateway.sessionCa.trim());
});

it('a man in the middle is noticed before anything is sent to it', async () => {
  const ca = await issueCertificate({ subject: 'CN=evil', ca: true });
  const leaf = await issueCertificate({ subject: 'CN=evil', names: ['localhost'], issuer: ca });
  const requests: string[] = [];
  // It passes the gateway's real CA on, or shows its own.
  for (const pem of [gateway.sessionCa, ca.certificatePem]) {
    const middle = createServer({ cert: leaf.certificatePem, key: leaf.privateKeyPem }, (req, res) => {
      void text(req).then((body) => {
        requests.push(`${req.method} ${req.url} ${body.replace(/"[\w-]{43}"/, '…')}`);
        res.end(pem);
      });
    });
    const port = await serving(middle);
    const real = parseJoinCode(await inviteTo(gateway));
    if (!real) throw new Error('no code');
    const code = formatJoinCode({ ...real, origin: `https://localhost:${port}` });
    await expect(enrol(installationFor(code, null, null), options())).rejects.toThrow(
      pem === gateway.sessionCa ? /not signed by the CA of the code/ : /not the one of the code/,
    );
  }
  // It is asked for a proof, with a random number.
  expect(requests).toEqual(['GET /ca.pem ', 'POST /time {"nonce":…}', 'GET /ca.pem ']);
});

it('an endless answer is not read to its end', async () => {
  const other = await issueCertificate({ subject: 'CN=localhost', names: ['localhost'] });
  const endless = createServer({ cert: other.certificatePem, key: other.privateKeyPem }, (_req, res) => {
    Readable.from(
      (function* () {
        for (;;) yield Buffer.alloc(16 * 1024, 'x');
      })(),
    ).pipe(res);
  });
  await serving(endless);
  const real = parseJoinCode(await inviteTo(gateway));
  if (!real) throw new Error('no code');
  const { port } = endless.address() as AddressInfo;
  const code = formatJoinCode({ ...real, origin: `https://localhost:${port}` });
  await expect(enrol(installationFor(code, null, null), options())).rejects.toThrow(
    'the answer is longer than 65536 bytes',
  );
});

it('a refusal says why, and an unreachable gateway is tried again until time is up', async () => {
  const code = await inviteTo(gateway, { max_uses: 1 });
  await enrol(installationFor(code, null, null), options());
  await expect(enrol(installationFor(code, null, null), options())).rejects.toThrow(/have all joined/);
  const nowhere = formatJoinCode({ origin: 'https://127.0.0.1:1', pin: null, isPublic: false, secret: 'a_b' });
  const clock = new InstantClock();
  const reasons: string[] = [];
  const waiting = options({ clock, deadline: clock.now() + 5000, onWait: ({ reason }) => reasons.push(reason) });
  await expect(enrol(installationFor(nowhere, null, null), waiting)).rejects.toMatchObject({ exitCode: 3 });
  expect(reasons.length).toBeGreaterThan(1);
});

it('a device that must be approved waits, and joins once it is', async () => {
  const code = await inviteTo(gateway, { needs_approval: true });
  const waits: boolean[] = [];
  const approve = async () => {
    const [device] = gateway.store.devices.page(null, 1);
    if (device)
      await gateway.store.database.write(() => gateway.store.devices.update({ ...device, status: 'enrolled' }));
  };
  const onWait: EnrolOptions['onWait'] = ({ isPending }) => {
    waits.push(isPending);
    void approve();
  };
  const { enrolment } = await enrol(installationFor(code, null, null), options({ onWait }));
  expect(enrolment.authtoken).toMatch(/_/);
  expect(waits[0]).toBe(true);
});

it.each(['', 'join-', 'no code', 'join-AQGFxx'])('%j is refused as a damaged code', async (code) => {
  await expect(enrol({ install_key: '', machine: null, code, device: null }, options())).rejects.toMatchObject({
    exitCode: 2,
  });
});
