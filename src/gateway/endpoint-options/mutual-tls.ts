import { X509Certificate } from 'node:crypto';
import { z } from 'zod';
import { RpcError } from '../../agent-protocol/rpc.ts';
import { hyphenated } from '../../lib/http/header-fields.ts';
import { certificateProblem, MAX_AUTHORITIES } from '../../lib/tls/usual-keys.ts';
import type { PolicyConnection } from '../../traffic-policy/policy-subjects.ts';
import type { RawAction } from '../../traffic-policy/policy-text.ts';
import { type PreparedAction, policyError } from '../../traffic-policy/steps.ts';

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

/** Concatenated PEM certificates in base64. */
export const ClientAuthorities = z.object({ mutual_tls_ca: z.string().max(512 * 1024) });

/** The CAs that must have signed clients' certificates, one PEM each. @throws {RpcError} for none, or one of no CA */
export function parseAuthorities(
  option: string,
  value: z.output<typeof ClientAuthorities> | null | undefined,
): readonly string[] {
  if (!value) return [];
  const pem = Buffer.from(value.mutual_tls_ca, 'base64').toString('latin1');
  const certificates = pem.match(CERTIFICATE) ?? [];
  const number = certificates.length;
  if (number === 0 || number > MAX_AUTHORITIES) {
    throw new RpcError(
      'ERR_NGROK_301',
      `${option}: contains ${number} PEM certificates; expected 1 to ${MAX_AUTHORITIES}`,
    );
  }
  for (const [at, certificate] of certificates.entries()) {
    const problem = problemOf(certificate);
    if (problem) throw new RpcError('ERR_NGROK_301', `${option}: certificate ${at + 1} ${problem}`);
  }
  return certificates;
}

/** The action that rejects clients whose certificate was not verified against the CAs. */
export function certificateRules(authorities: readonly string[]): RawAction[] {
  if (authorities.length === 0) return [];
  return [{ type: 'mutual-tls', prepare: () => demandClientCertificate(authorities) }];
}

/** Like ngrok, accepts only certificates with the basic constraint CA (RFC 5280, 4.2.1.9). */
function problemOf(pem: string): string | null {
  try {
    const certificate = new X509Certificate(pem);
    return certificate.ca ? certificateProblem(certificate) : 'is not a CA certificate (basic constraint CA)';
  } catch {
    return 'cannot be parsed';
  }
}

/** The connection was opened for another name (RFC 9110, 7.4), and its handshake did not request the certificate. */
const MISDIRECTED = policyError(
  421,
  'ERR_NGROK_3004',
  'This endpoint requires a client certificate, and this connection was opened without one.',
);

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
 */
function demandClientCertificate(authorities: readonly string[]): PreparedAction {
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
    if (NAMES.has(hyphenated(headers[at]?.toLowerCase() ?? ''))) headers.splice(at, 2);
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
