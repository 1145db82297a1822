import { constants } from 'node:crypto';
import type { SecureContextOptions } from 'node:tls';

/**
 * Options of all TLS servers. The server's order of suites counts, save that a client without hardware for AES gets
 * ChaCha20. TLS 1.2 has only suites with forward secrecy and authenticated encryption; clients since about 2015 have one.
 * Renegotiation is off: it costs the server a handshake each time, and no client needs it.
 */
export const TLS_SERVER_OPTIONS: SecureContextOptions = {
  minVersion: 'TLSv1.2',
  ciphers: [
    ...['TLS_AES_256_GCM_SHA384', 'TLS_CHACHA20_POLY1305_SHA256', 'TLS_AES_128_GCM_SHA256'],
    ...['ECDHE+AESGCM', 'ECDHE+CHACHA20'],
  ].join(':'),
  honorCipherOrder: true,
  secureOptions: constants.SSL_OP_NO_RENEGOTIATION | constants.SSL_OP_PRIORITIZE_CHACHA,
};
