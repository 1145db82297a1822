import { describe, expect, it } from 'vitest';
import { checkPolicy } from '../../../src/traffic-policy/check-policy.ts';
import { compilePolicy } from '../../../src/traffic-policy/engine.ts';
import { issueCertificate } from '../../support/certificates.ts';
import { connectionFrom, ENDPOINT } from '../fake-request.ts';
import { onConnect } from './run-action.ts';

describe('terminate-tls', () => {
  it('sets the TLS versions, certificate and client verification for the edge', () => {
    const config = {
      min_version: '1.3',
      mutual_tls_certificate_authorities: 'ca_1',
      mutual_tls_verification_strategy: 'request',
    };
    const text = JSON.stringify({
      on_tcp_connect: [
        { expressions: ["conn.client_ip == '203.0.113.7'"], actions: [{ type: 'terminate-tls', config }] },
      ],
    });
    const policy = compilePolicy(text, 'tls');
    expect(policy.terminatesTls).toBe(true);
    const connect = { connection: connectionFrom(), endpoint: ENDPOINT };
    expect(policy.onTcpConnect?.(connect)).toBeUndefined();
    expect(connect).toMatchObject({
      termination: {
        minVersion: '1.3',
        maxVersion: '1.3',
        certificate: null,
        clientAuthorities: ['ca_1'],
        clientVerification: 'request',
      },
    });
    const other = { connection: connectionFrom('192.0.2.1'), endpoint: ENDPOINT };
    policy.onTcpConnect?.(other);
    expect(other).not.toHaveProperty('termination');
  });

  it('accepts a certificate with its own key only, and quotes neither in errors', async () => {
    const [one, other] = [await issueCertificate({ subject: 'CN=a' }), await issueCertificate({ subject: 'CN=b' })];
    const refusal = (server_private_key: string) => {
      const config = { server_certificate: one.certificatePem, server_private_key };
      return checkPolicy(onConnect({ type: 'terminate-tls', config }), ['tls']);
    };
    expect(refusal(one.privateKeyPem)).toEqual([]);
    const [problem] = refusal(other.privateKeyPem);
    expect(problem).toMatchObject({
      code: 'ERR_NGROK_2204',
      place: 'on_tcp_connect[0].actions[0].config.server_private_key',
      message: 'is not the key of server_certificate',
    });
  });
});
