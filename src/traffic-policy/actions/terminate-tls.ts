import { z } from 'zod';
import type { ActionContext } from '../action-context.ts';
import { parseConfig } from '../action-problems.ts';
import { refusal } from '../policy-refused.ts';
import type { PreparedAction } from '../steps.ts';

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

/** Tells the edge how to do the TLS handshake. */
export function terminateTls(config: unknown, context: ActionContext): PreparedAction {
  if (context.policy.protocol === 'http' || context.policy.protocol === 'tcp') {
    throw refusal('ERR_NGROK_2205', `an endpoint of the protocol ${context.policy.protocol} has no TLS to terminate`);
  }
  const parsed = parseConfig(TerminateTlsConfig, config);
  const { min_version: minVersion = '1.2', max_version: maxVersion = '1.3' } = parsed;
  if (minVersion > maxVersion) throw refusal('ERR_NGROK_2204', 'is above max_version', 'config.min_version');
  if ((parsed.server_certificate === undefined) !== (parsed.server_private_key === undefined)) {
    throw refusal('ERR_NGROK_2240', 'server_certificate and server_private_key are given together', 'config');
  }
  if (context.policy.fixedTermination) refuseSpecialTermination(parsed);
  const optional = (text: string | undefined, field: string) =>
    text === undefined ? null : context.template(text, `config.${field}`);
  const certificate = optional(parsed.server_certificate, 'server_certificate');
  const privateKey = optional(parsed.server_private_key, 'server_private_key');
  const authorities = (parsed.mutual_tls_certificate_authorities ?? []).map((text, at) =>
    context.template(text, `config.mutual_tls_certificate_authorities[${at}]`),
  );
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
      return undefined;
    },
  };
}

/** The defaults are all that may be asked for. */
function refuseSpecialTermination(config: z.output<typeof TerminateTlsConfig>): void {
  const { min_version: minVersion = '1.2', max_version: maxVersion = '1.3', ...special } = config;
  const asked = [
    ...(minVersion === '1.2' ? [] : ['min_version']),
    ...(maxVersion === '1.3' ? [] : ['max_version']),
    ...Object.keys(special),
  ];
  if (asked.length === 0) return;
  throw refusal('ERR_NGROK_2204', 'is for the modules tls_termination and mutual_tls to say', `config.${asked[0]}`);
}
