import { X509Certificate } from 'node:crypto';
import { hyphenated } from '../../lib/http/header-spelling.ts';
import type { PolicyConnection } from '../../traffic-policy/policy-subjects.ts';
import type { PolicyError, PreparedAction } from '../../traffic-policy/steps.ts';

/**
 * A connection can be opened for one name and used for another (RFC 9110, 7.4). Its handshake then did not request the
 * certificate that this endpoint requires.
 */
const MISDIRECTED: PolicyError = {
  kind: 'error',
  status: 421,
  code: 'ERR_NGROK_3004',
  message: 'This endpoint requires a client certificate, and this connection was opened without one.',
  headers: [],
};

const HEADERS = {
  commonName: 'ngrok-mtls-subject-cn',
  dnsNames: 'ngrok-mtls-subject-alt-name-dns',
  emails: 'ngrok-mtls-email-addresses',
  serialNumber: 'ngrok-mtls-serial-number',
} as const;
const NAMES: ReadonlySet<string> = new Set(Object.values(HEADERS));

/**
 * Passes requests on when the handshake has verified the client's certificate against the CAs, and adds its subject in
 * headers (ngrok's documentation, "Mutual TLS", upstream headers). The same headers sent by clients are removed.
 *
 * @param authorities PEM certificates of the CAs
 */
export function demandClientCertificate(authorities: readonly string[]): PreparedAction {
  const facts = new WeakMap<PolicyConnection, readonly string[]>();
  return {
    ends: false,
    on_http_request: () => (request) => {
      const { connection, headers } = request;
      const { tls } = connection;
      const certificate = tls?.clientCertificate;
      if (!certificate || !isVerifiedBy(tls.verifiedBy ?? [], authorities)) return MISDIRECTED;
      let known = facts.get(connection);
      if (!known) {
        known = headersOf(certificate);
        facts.set(connection, known);
      }
      removeClaimed(headers);
      headers.push(...known);
      request.scope?.changed();
      return undefined;
    },
  };
}

/** Compares contents: an endpoint that was bound again has the same CAs in new strings. */
function isVerifiedBy(verifiedBy: readonly string[], authorities: readonly string[]): boolean {
  return verifiedBy.length === authorities.length && verifiedBy.every((pem, at) => pem === authorities[at]);
}

function removeClaimed(headers: string[]): void {
  for (let at = headers.length - 2; at >= 0; at -= 2) {
    if (NAMES.has(hyphenated((headers[at] as string).toLowerCase()))) headers.splice(at, 2);
  }
}

function headersOf(der: Uint8Array): readonly string[] {
  const certificate = new X509Certificate(der);
  const alternatives = alternativeNames(certificate.subjectAltName ?? '');
  const [commonName = ''] = [certificate.toLegacyObject().subject?.CN ?? ''].flat();
  const of = (kind: string) => alternatives.flatMap(([each, value]) => (each === kind ? value : [])).join(', ');
  const values = {
    [HEADERS.commonName]: commonName,
    [HEADERS.dnsNames]: of('DNS'),
    [HEADERS.emails]: of('email'),
    [HEADERS.serialNumber]: certificate.serialNumber.toLowerCase(),
  };
  return Object.entries(values).flatMap(([name, value]) => (value === '' ? [] : [name, headerText(value)]));
}

/** Parses Node's format: `DNS:a.example, email:"a, b@example"`, quoted where ambiguous. */
function alternativeNames(text: string): [kind: string, value: string][] {
  const names = text.matchAll(/(?:^|, )([A-Za-z ]+):("(?:[^"\\]|\\.)*"|[^,]*)/g);
  return [...names].map(([, kind = '', value = '']) => [
    kind,
    value.startsWith('"') ? String(JSON.parse(value)) : value,
  ]);
}

/** Encodes UTF-8 as header bytes, without control characters. */
function headerText(value: string): string {
  return Buffer.from(value)
    .toString('latin1')
    .replace(/[^\t\x20-\x7e\x80-\xff]/g, '');
}
