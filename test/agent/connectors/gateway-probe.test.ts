import { once } from 'node:events';
import { type AddressInfo, connect } from 'node:net';
import { createServer } from 'node:tls';
import { expect, it, onTestFinished } from 'vitest';
import { CLOUD_CA as OTHER_CA } from '../../../src/agent/connectors/gateway-ca.ts';
import { probeGateway } from '../../../src/agent/connectors/gateway-probe.ts';
import { issueCertificate } from '../../support/certificates.ts';

const DAY_MS = 86_400_000;

it.each<[string, number, number, RegExp | null, boolean?]>([
  ['a certificate that is not valid yet', 2, 30, /^the clock of this machine shows \S+, before .*; set the clock$/],
  [
    'an expired certificate',
    -30,
    -2,
    /^the clock of this machine shows \S+, after .* expired .*; set the clock or renew/,
  ],
  [
    'a certificate of an unknown CA',
    -2,
    30,
    /^signed by CN=gateway\.test, a CA that is not trusted here; do this$/,
    false,
  ],
  ['a valid certificate', -2, 30, null],
])('says what is wrong with %s', async (_what, from, to, problem, isTrusted = true) => {
  const issued = await issueCertificate({
    subject: 'CN=gateway.test',
    names: ['gateway.test'],
    notBefore: new Date(Date.now() + from * DAY_MS),
    notAfter: new Date(Date.now() + to * DAY_MS),
  });
  const server = createServer({ cert: issued.certificatePem, key: issued.privateKeyPem }).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const dial = async () => connect(port, '127.0.0.1');
  const answer = await probeGateway(
    { host: 'gateway.test', port, serverName: 'gateway.test' },
    dial,
    { ca: isTrusted ? issued.certificatePem : OTHER_CA, adviceOnCa: 'do this' },
    AbortSignal.timeout(5_000),
  );
  expect(answer.certificate).toBe('CN=gateway.test');
  if (problem === null) expect(answer.problem).toBeNull();
  else expect(answer.problem).toMatch(problem);
});
