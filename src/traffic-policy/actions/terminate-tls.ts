import { z } from 'zod';
import { messageOf } from '../../lib/errors.ts';
import { MAX_AUTHORITIES, readCertificates, readPrivateKey, requireSoundSignatures } from '../../lib/tls/usual-keys.ts';
import type { ActionContext } from '../action-context.ts';
import { parseConfig } from '../action-problems.ts';
import { refusal } from '../policy-errors.ts';
import type { PolicyPorts } from '../ports.ts';
import type { PreparedAction } from '../steps.ts';
import type { Template } from '../templates.ts';

const Version = z.enum(['1.2', '1.3']);

const TerminateTlsConfig = z.strictObject({
  min_version: Version.optional(),
  max_version: Version.optional(),
  server_private_key: z.string().optional(),
  server_certificate: z.string().optional(),
  mutual_tls_certificate_authorities: z
    .union([z.string().transform((only) => [only]), z.array(z.string()).max(20)])
    .optional(),
  mutual_tls_verification_strategy: z.enum(['require-and-verify', 'require-any', 'request']).optional(),
});

export function terminateTls(config: unknown, context: ActionContext): PreparedAction {
  if (context.policy.protocol === 'http' || context.policy.protocol === 'tcp') {
    throw refusal('ERR_NGROK_2205', `is not supported: a ${context.policy.protocol} endpoint has no TLS to terminate`);
  }
  const parsed = parseConfig(TerminateTlsConfig, config);
  const { min_version: minVersion = '1.2', max_version: maxVersion = '1.3' } = parsed;
  if (minVersion > maxVersion) throw refusal('ERR_NGROK_2204', 'must not be above max_version', 'config.min_version');
  if ((parsed.server_certificate === undefined) !== (parsed.server_private_key === undefined)) {
    throw refusal('ERR_NGROK_2240', 'server_certificate and server_private_key must be set together', 'config');
  }
  if (parsed.mutual_tls_verification_strategy !== undefined && !parsed.mutual_tls_certificate_authorities?.length) {
    const message = 'has no effect without mutual_tls_certificate_authorities';
    throw refusal('ERR_NGROK_2240', message, 'config.mutual_tls_verification_strategy');
  }
  if (context.policy.fixedTermination) refuseSpecialTermination(parsed);
  const optional = (text: string | undefined, field: string) =>
    text === undefined ? null : context.template(text, `config.${field}`);
  const certificate = optional(parsed.server_certificate, 'server_certificate');
  const privateKey = optional(parsed.server_private_key, 'server_private_key');
  const authorities = (parsed.mutual_tls_certificate_authorities ?? []).map((text, at) =>
    context.template(text, `config.mutual_tls_certificate_authorities[${at}]`),
  );
  checkPem(certificate, privateKey, authorities, context.ports);
  const clientVerification = parsed.mutual_tls_verification_strategy ?? 'require-and-verify';
  return {
    ends: false,
    on_tcp_connect: () => (connect) => {
      const scope = context.scopeOf(connect);
      connect.termination = {
        minVersion,
        maxVersion,
        certificate: certificate?.text(scope) ?? null,
        privateKey: privateKey?.text(scope) ?? null,
        clientAuthorities: authorities.map((authority) => authority.text(scope)),
        clientVerification,
      };
      context.record(connect, 'terminate_tls', {});
      return undefined;
    },
  };
}

/** Checks certificates and keys that are known now: with an invalid one no handshake could succeed. The edge checks others. */
function checkPem(
  certificate: Template | null,
  privateKey: Template | null,
  authorities: readonly Template[],
  ports: Pick<PolicyPorts, 'hasCertificateAuthority'>,
): void {
  const [cert, key] = [certificate?.constant ?? null, privateKey?.constant ?? null];
  if (cert !== null) check('config.server_certificate', () => requireSoundSignatures(cert));
  if (key !== null) check('config.server_private_key', () => readPrivateKey(key));
  if (cert !== null && key !== null && !areOnePair(cert, key)) {
    throw refusal('ERR_NGROK_2204', 'is not the key of server_certificate', 'config.server_private_key');
  }
  let count = 0;
  for (const [at, { constant }] of authorities.entries()) {
    const field = `config.mutual_tls_certificate_authorities[${at}]`;
    if (constant === null) continue;
    if (!constant.startsWith('ca_')) {
      check(field, () => {
        count += readCertificates(constant, MAX_AUTHORITIES).length;
        if (count > MAX_AUTHORITIES) throw new Error(`makes more than ${MAX_AUTHORITIES} certificates of all entries`);
      });
    } else if (!ports.hasCertificateAuthority(constant)) {
      throw refusal('ERR_NGROK_2204', `no certificate authority has the id ${constant}`, field);
    }
  }
}

function check(field: string, read: () => unknown): void {
  try {
    read();
  } catch (error) {
    throw refusal('ERR_NGROK_2204', messageOf(error), field);
  }
}

function areOnePair(certificate: string, privateKey: string): boolean {
  return readCertificates(certificate)[0]?.checkPrivateKey(readPrivateKey(privateKey)) === true;
}

function refuseSpecialTermination(config: z.output<typeof TerminateTlsConfig>): void {
  const { min_version: minVersion = '1.2', max_version: maxVersion = '1.3', ...special } = config;
  const asked = [
    ...(minVersion === '1.2' ? [] : ['min_version']),
    ...(maxVersion === '1.3' ? [] : ['max_version']),
    ...Object.keys(special),
  ];
  if (asked.length === 0) return;
  throw refusal(
    'ERR_NGROK_2204',
    'is set by the modules tls_termination and mutual_tls of the edge',
    `config.${asked[0]}`,
  );
}
