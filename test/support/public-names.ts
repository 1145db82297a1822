import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { pipeline } from 'node:stream';
import { connect, createServer } from 'node:tls';
import { onTestFinished } from 'vitest';
import { certificateFacts } from '../../src/gateway/certificates/certificate-facts.ts';
import { readUploadedPair } from '../../src/gateway/certificates/certificate-upload.ts';
import type { GatewayOptions } from '../../src/gateway/context/gateway-options.ts';
import { pinnedProtocols } from '../../src/lib/tls/pinned-chain.ts';
import { type Issued, issueCertificate } from './certificates.ts';
import type { TestGateway } from './gateway.ts';

/** Options of a gateway that orders certificates for its own names, from an ACME server that is not there. */
export function ordering(ownNames: 'public' | 'all', root: string | null = null): Pick<GatewayOptions, 'acme'> {
  const account = { directoryUrl: 'https://127.0.0.1:1/', contactEmail: null, externalAccountBinding: null };
  return { acme: { ...account, trust: null, resolvers: null, ownNames, root } };
}

/** Gives names of a gateway a certificate of a public CA, as ACME would. */
export async function certifyNames(
  { store }: Pick<TestGateway, 'store'>,
  root: Issued,
  names: readonly string[],
): Promise<void> {
  for (const domain of names) {
    const row = store.ownDomains.byName(domain);
    if (!row) throw new Error(`${domain} was not claimed`);
    const now = Date.now();
    const validity = { notBefore: new Date(now - 86_400_000), notAfter: new Date(now + 90 * 86_400_000) };
    const issued = await issueCertificate({ subject: `CN=${domain}`, names: [domain], issuer: root, ...validity });
    const { certificatePem: certificate_pem, privateKeyPem } = issued;
    const { leaf, key } = readUploadedPair(certificate_pem, privateKeyPem);
    const common = { created_at: store.now(), description: null, metadata: null, issued_at: store.now() };
    const certificate = { ...common, id: store.ids.next('cert'), certificate_pem, facts: certificateFacts(leaf, key) };
    const renewal = { renews_at: '2099-01-01T00:00:00Z', due_at: '2099-01-01T00:00:00Z' };
    await store.database.write(() => {
      store.tlsCertificates.insertWithKey(certificate, privateKeyPem);
      store.ownDomains.update({ ...row, ...renewal, certificate_id: certificate.id, job: null });
    });
  }
}

/** A server in front of the API that ends TLS with a certificate of its own, and passes on what it gets. @returns its port */
export async function serverInFront(
  { httpsPort, sessionCa }: Pick<TestGateway, 'httpsPort' | 'sessionCa'>,
  { certificatePem: cert, privateKeyPem: key }: Pick<Issued, 'certificatePem' | 'privateKeyPem'>,
): Promise<number> {
  // The gateway shows a chain that its own CA has signed to who asks for it.
  const ca = { ca: sessionCa, ALPNProtocols: pinnedProtocols(sessionCa) };
  const server = createServer({ cert, key }, (client) => {
    const behind = connect({ host: '127.0.0.1', port: httpsPort, servername: 'api.localhost', ...ca });
    pipeline(client, behind, client, () => {});
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  onTestFinished(() => void server.close());
  return (server.address() as AddressInfo).port;
}
