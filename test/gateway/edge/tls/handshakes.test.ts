import { expect, it } from 'vitest';
import { type HandshakeDemands, TlsContexts } from '../../../../src/gateway/edge/tls/handshakes.ts';
import { EDGE_TERMINATION } from '../../../../src/gateway/endpoints/online-endpoint.ts';
import { issueCertificate } from '../../../support/certificates.ts';
import { madeUpRsa, pemOf, spkiOf } from '../../../support/costly-keys.ts';
import { selfSigned } from '../../../support/self-signed.ts';

it('contexts are cached, with bounded memory', async () => {
  const contexts = new TlsContexts();
  const pair = await selfSigned();
  const plain = contexts.contextFor(pair, EDGE_TERMINATION);
  // Agents can make it large: text before a certificate is a comment.
  const large = (number: number): HandshakeDemands => ({
    ...EDGE_TERMINATION,
    clientAuthorities: [`${number}${' '.repeat(512 * 1024)}\n${pair.cert}`],
  });
  const first = contexts.contextFor(pair, large(0));
  expect(contexts.contextFor(pair, large(0))).toBe(first);
  for (let number = 1; number < 40; number++) {
    contexts.contextFor(pair, large(number));
    expect(contexts.contextFor(pair, EDGE_TERMINATION)).toBe(plain);
  }
  expect(contexts.contextFor(pair, large(39))).toBe(contexts.contextFor(pair, large(39)));
  expect(contexts.contextFor(pair, large(0))).not.toBe(first);
});

it('no context is created with a costly key, whoever has stored or computed it', async () => {
  const contexts = new TlsContexts();
  const pair = await selfSigned();
  const costly = await issueCertificate({ subject: 'CN=CA', publicKey: spkiOf(madeUpRsa(16_384)) });
  expect(() => contexts.contextFor({ ...pair, key: pemOf(madeUpRsa(8192)) }, EDGE_TERMINATION)).toThrow(
    'the private key is an RSA key with 8192 bits; use RSA with 2048 to 4096 bits',
  );
  expect(() => contexts.contextFor({ ...pair, cert: costly.certificatePem }, EDGE_TERMINATION)).toThrow(
    'the certificate has an RSA key with 16384 bits',
  );
  const clientAuthorities = [pair.cert, costly.certificatePem];
  expect(() => contexts.contextFor(pair, { ...EDGE_TERMINATION, clientAuthorities })).toThrow(
    'client CA 2 has an RSA key with 16384 bits',
  );
});

it('a policy gets no context with a certificate that clients refuse, nor with more than 50 client CAs', async () => {
  const contexts = new TlsContexts();
  const issuer = await issueCertificate({ subject: 'CN=CA', ca: true });
  const old = await issueCertificate({ subject: 'CN=a', names: ['a.test'], issuer, hash: 'SHA-1' });
  const pair = { cert: old.certificatePem, key: old.privateKeyPem };
  const demands = { ...EDGE_TERMINATION, certificate: pair.cert, privateKey: pair.key };
  expect(() => contexts.contextFor(pair, demands)).toThrow('the certificate is signed with an algorithm');
  const usual = await selfSigned();
  const clientAuthorities = Array(3).fill(`${issuer.certificatePem}\n`.repeat(17));
  expect(() => contexts.contextFor(usual, { ...EDGE_TERMINATION, clientAuthorities })).toThrow(
    'more than 50 client CAs',
  );
});
